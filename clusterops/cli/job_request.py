"""A TrainingJob from the words of a command line, as a manifest would say it."""

import re
import secrets
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from clusterops.api.names import RESOURCE_GPU, TRAINING_JOBS
from clusterops.api.training_job import longest_name
from clusterops.cli.errors import USAGE, CommandError

CHECKPOINT_ROOT = "/checkpoints"
NO_IMAGE = "none"  # Kubernetes wants a name; processes on this machine have no image
_RANDOM_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words by chance


class Request(NamedTuple):
    """What the options of `submit` say. `gpus` are those of one pod."""

    command: Sequence[str]
    name: str | None = None
    replicas: int = 1
    gpus: int = 0
    queue: str = ""
    priority: str | None = None
    environment: Sequence[str] = ()
    image: str | None = None
    checkpoints: str | None = None
    working_directory: str | None = None
    grace_seconds: int | None = None


def job_of(request: Request, namespace: str) -> dict[str, Any]:
    """The TrainingJob that the request stands for.

    Raises:
        CommandError: a variable is not NAME=VALUE.
    """
    name = request.name or generated_name(request.command, request.replicas)
    container: dict[str, Any] = {
        "name": "trainer",
        "image": request.image or NO_IMAGE,
        "command": list(request.command),
    }
    if request.working_directory:
        container["workingDir"] = request.working_directory
    if request.environment:
        container["env"] = [_variable(word) for word in request.environment]
    if request.gpus:
        container["resources"] = {"limits": {RESOURCE_GPU: request.gpus}}
    pod: dict[str, Any] = {"containers": [container]}
    spec: dict[str, Any] = {"queueName": request.queue}
    if request.priority:
        spec["priorityClassName"] = request.priority
    spec |= {"replicas": request.replicas, "template": {"spec": pod}}
    checkpoint: dict[str, Any] = {}
    if request.checkpoints:
        container["volumeMounts"] = [{"name": "checkpoints", "mountPath": CHECKPOINT_ROOT}]
        claim = {"claimName": request.checkpoints}
        pod["volumes"] = [{"name": "checkpoints", "persistentVolumeClaim": claim}]
        checkpoint["directory"] = f"{CHECKPOINT_ROOT}/{name}"
    if request.grace_seconds is not None:
        checkpoint["gracePeriodSeconds"] = request.grace_seconds
    if checkpoint:
        spec["checkpoint"] = checkpoint
    return {
        "apiVersion": TRAINING_JOBS.api_version,
        "kind": TRAINING_JOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def generated_name(command: Sequence[str], replicas: int) -> str:
    """A new name after the program or script that runs: `train-x7k2p`."""
    words = [PurePath(word).name for word in command if not word.startswith("-")]
    interpreter = len(words) > 1 and re.match(r"python[\d.]*\Z|torchrun\Z|bash\Z|sh\Z", words[0])
    chosen = words[1] if interpreter else words[0]
    stem = chosen.removesuffix(".py").removesuffix(".sh").rsplit(".", 1)[-1].lower()
    slug = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    slug = slug if slug[:1].isalpha() else f"job-{slug}".strip("-")
    suffix = "".join(secrets.choice(_RANDOM_LETTERS) for _ in range(5))
    room = longest_name(replicas) - len(suffix) - 1
    return f"{slug[: min(room, 30)].rstrip('-')}-{suffix}"


def _variable(word: str) -> dict[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise CommandError(f"--env {word} is not NAME=VALUE", "--env NAME=VALUE", USAGE)
    return {"name": name, "value": value}
