"""From a pod's container to what the shim starts: argument vector, environment, working directory.

Pure: everything fetched from the API server or read from the machine is handed in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterops.nodeagent import environment, volumes
from clusterops.nodeagent.downward import ConfigError, Pod, Surroundings
from clusterops.nodeagent.environment import References
from clusterops.nodeagent.volumes import Volume

UMASK = 0o022  # what containers have


class StartError(Exception):
    """The container can never start as it is declared. Ends it with the given exit code."""

    def __init__(self, message: str, code: int = 128) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything the shim needs to know to start one container."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    message_path: str
    """Where the container's termination message will be found."""
    message_from_logs: bool = False
    """Without one, the end of the log of a failed container serves as its termination message."""
    folders: tuple[str, ...] = ()
    """To be made before the start, when missing."""

    def to_record(self, log: Path, max_bytes: int, max_files: int) -> dict[str, Any]:
        """The content of launch.json."""
        return {
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": self.cwd,
            "umask": UMASK,
            "messageFromLogs": self.message_from_logs,
            "messagePath": self.message_path,
            "log": str(log),
            "logMaxBytes": max_bytes,
            "logMaxFiles": max_files,
        }


def launch(
    pod: Pod,
    container: Mapping[str, Any],
    *,
    objects: References,
    planned: Iterable[Volume],
    base: Mapping[str, str],
    gpus: tuple[str, ...],
    around: Surroundings,
    work_folder: Path,
    message_path: Path,
    forbid_root_uid: int | None = None,
) -> Launch:
    """The launch plan of one container.

    `base` is `environment.base`, `gpus` are the devices given to this container, `work_folder` is
    where it starts when it names no working directory, `message_path` where its termination
    message goes. `forbid_root_uid`: our uid, where runAsNonRoot has to be honoured.

    Raises:
        ConfigError: something it refers to is missing; try again.
        StartError: it can never start.
    """
    if forbid_root_uid == 0 and _must_not_be_root(pod, container):
        raise ConfigError("container has runAsNonRoot and this node's processes run as root")
    variables = environment.declared(pod, container, objects, around)
    mounts = volumes.mounts(container, planned, variables, str(message_path))

    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise StartError(
            f"container {container['name']!r} has no command: this node runs processes, not images,"
            " so the command has to be in the pod"
        )
    argv = [mounts.translate(environment.expand(str(part), variables)) for part in argv]
    env = dict(base)
    env.update({name: mounts.translate(value) for name, value in variables.items()})
    # Also when empty: a pod that asked for no GPU must not find one.
    env[environment.CUDA_VISIBLE_DEVICES] = ",".join(gpus)
    for text in (*argv, *env, *env.values()):
        if "\0" in text:
            raise StartError("a NUL character in command, args or environment")
    declared_cwd = container.get("workingDir") or ""
    termination = str(container.get("terminationMessagePath") or "/dev/termination-log")
    return Launch(
        argv=tuple(argv),
        env=env,
        cwd=mounts.translate(declared_cwd) if declared_cwd else str(work_folder),
        message_path=mounts.translate(termination),
        message_from_logs=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        folders=tuple(mounts.sub_folders),
    )


def _must_not_be_root(pod: Pod, container: Mapping[str, Any]) -> bool:
    of_pod = (pod["spec"].get("securityContext") or {}).get("runAsNonRoot")
    of_container = (container.get("securityContext") or {}).get("runAsNonRoot")
    return bool(of_pod if of_container is None else of_container)
