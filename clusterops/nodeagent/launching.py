"""From a decision to start a container to a run folder that a shim can work from.

Fetches what the pod refers to, makes its volumes and folders, and writes launch.json.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import ApiError, Forbidden
from clusterops.nodeagent import admission, environment, pod_spec, records, volume_files, volumes
from clusterops.nodeagent.config import NodeAgentConfig
from clusterops.nodeagent.downward import ConfigError, Pod, Surroundings
from clusterops.nodeagent.environment import Reference, References
from clusterops.nodeagent.pod_folder import PodFolder
from clusterops.nodeagent.pod_spec import StartError
from clusterops.nodeagent.volumes import Places

_RESOURCES = {"Secret": names.SECRETS, "ConfigMap": names.CONFIG_MAPS}


class Launcher:
    """Prepares runs of containers on one node."""

    def __init__(self, config: NodeAgentConfig, client: Client, around: Surroundings) -> None:
        self._config = config
        self._client = client
        self._around = around

    async def prepare(self, pod: Pod, folder: PodFolder, container: str, attempt: int) -> None:
        """Makes everything a run needs, launch.json last. May be done again after a crash.

        Raises:
            ConfigError: something the pod refers to is missing; try again.
            Unsupported: the pod can never run here.
            StartError: this container can never start.
            Retryable: the API server did not answer.
            OSError: the disk's reasons.
        """
        objects = await self._fetch(pod)
        places = Places(
            pod_volumes=folder.volumes,
            claims=self._config.volumes_dir,
            host_path_roots=None if self._config.embedded else self._config.host_path_roots,
        )
        planned = volumes.plan(pod, objects, places, self._around)
        folder.volumes.mkdir(mode=0o700, parents=True, exist_ok=True)
        for volume in planned:
            volume_files.make(volume, places)
        self._config.at_write_point("volumes-written")

        run = folder.run_path(container, attempt)
        run.mkdir(mode=0o700, parents=True, exist_ok=True)
        launch = pod_spec.launch(
            pod,
            _container(pod, container),
            objects=objects,
            planned=planned,
            base=environment.base_of_this_process(os.environ, tmp_folder(pod, folder, container)),
            gpus=admission.share(pod, container, folder.record.gpus),
            around=self._around,
            work_folder=folder.work,
            message_path=run / records.TERMINATION_MESSAGE,
            forbid_root_uid=None if self._config.embedded else os.getuid(),
        )
        log = folder.log_path(container, attempt)
        tmp = tmp_folder(pod, folder, container)
        for path in (folder.work, tmp, log.parent, *map(Path, launch.folders)):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Programs open the file to write into it, they do not make it.
        with contextlib.suppress(OSError):
            Path(launch.message_path).touch()
        records.write(
            str(run / records.LAUNCH),
            launch.to_record(log, self._config.log_max_bytes, self._config.log_max_files),
            durable=False,
        )
        self._config.at_write_point("launch-written")

    async def _fetch(self, pod: Pod) -> References:
        wanted = volumes.references(pod)
        namespace = pod["metadata"]["namespace"]
        found = await asyncio.gather(*(self._find(namespace, reference) for reference in wanted))
        return References(dict(zip(wanted, found, strict=True)))

    async def _find(self, namespace: str, reference: Reference) -> Mapping[str, Any] | None:
        kind, name = reference
        try:
            return await self._client.find(_RESOURCES[kind], namespace, name)
        except Forbidden as error:
            message = f"{kind.lower()} {name!r} may not be read by this node: {error}"
            raise ConfigError(message) from error
        except ApiError as error:
            if error.status >= 500 or error.status == 429:
                raise
            raise ConfigError(f"{kind.lower()} {name!r}: {error}") from error


def tmp_folder(pod: Pod, folder: PodFolder, container: str) -> Path:
    """The TMPDIR of one container: nobody else has it, so it also tells whose a process is."""
    spec = pod["spec"]
    every = [*(spec.get("initContainers") or ()), *spec["containers"]]
    index = [candidate["name"] for candidate in every].index(container)
    return folder.tmp / str(index)


def refuse_to_start(run: Path, error: StartError) -> None:
    """Records the end of a run that could not even begin. Raises OSError."""
    now = records.timestamp(time.time_ns())
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    records.write_exit(
        str(run),
        exit_record(error.code, 0, "StartError", str(error), started_at=now, finished_at=now),
    )


def exit_record(
    code: int, number: int, reason: str, message: str, *, started_at: str, finished_at: str
) -> dict[str, Any]:
    """The content of an exit.json that the agent writes because no shim did."""
    return {
        "bootId": records.boot_id(),
        "code": code,
        "signal": number,
        "reason": reason,
        "message": message,
        "startedAt": started_at,
        "finishedAt": finished_at,
        "finishedMonotonic": time.monotonic(),
        "droppedLogLines": 0,
        "leftOver": [],
    }


def _container(pod: Pod, name: str) -> Mapping[str, Any]:
    spec = pod["spec"]
    every = [*(spec.get("initContainers") or ()), *spec["containers"]]
    found: Mapping[str, Any] = next(c for c in every if c["name"] == name)
    return found
