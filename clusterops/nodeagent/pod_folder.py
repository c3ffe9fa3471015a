"""What one pod leaves on this machine, and reading it back: the agent's memory is only here.

<state>/pods/<uid>/pod.json                     the pod is ours; its GPUs; whether it has ended
<state>/pods/<uid>/volumes/<volume>/            emptyDir, secrets, config maps
<state>/pods/<uid>/work/                        where containers start
<state>/pods/<uid>/runs/<container>/<attempt>/  see `records`
<state>/tmp/<start of uid>/<container number>/  TMPDIR: short, since sockets' paths are limited
"""

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clusterops.nodeagent import processes, records
from clusterops.nodeagent.admission import Failure
from clusterops.nodeagent.log_tail import tail
from clusterops.nodeagent.observation import Observed, Run, RunState, Waiting

KEPT_RUNS = 8  # as many as the back-off looks at
MAX_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class PodRecord:
    """The content of pod.json. `gpus` are devices as in `gpus.Gpu.device`; `logs` a folder."""

    namespace: str
    name: str
    uid: str
    boot_id: str
    admitted_at: str
    admitted_monotonic: float
    logs: str
    gpus: tuple[str, ...] = ()
    failure: Failure | None = None
    ended: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name)."""
        return self.namespace, self.name

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        failure = self.failure
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "bootId": self.boot_id,
            "admittedAt": self.admitted_at,
            "admittedMonotonic": self.admitted_monotonic,
            "logs": self.logs,
            "gpus": list(self.gpus),
            "failure": failure and {"reason": failure.reason, "message": failure.message},
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "PodRecord":
        """Reads what `to_json` wrote."""
        failure = stored["failure"]
        return cls(
            namespace=stored["namespace"],
            name=stored["name"],
            uid=stored["uid"],
            boot_id=stored["bootId"],
            admitted_at=stored["admittedAt"],
            admitted_monotonic=stored["admittedMonotonic"],
            logs=stored["logs"],
            gpus=tuple(stored["gpus"]),
            failure=failure and Failure(failure["reason"], failure["message"]),
            ended=stored["ended"],
        )


class PodFolder:
    """The records of one pod. Synchronous: its files are few and small."""

    def __init__(self, state_dir: Path, record: PodRecord) -> None:
        self.record = record
        self.path = state_dir / "pods" / record.uid
        self.volumes = self.path / "volumes"
        self.work = self.path / "work"
        self.tmp = state_dir / "tmp" / record.uid[:13]
        self._exited: dict[Path, tuple[Run, float | None]] = {}  # never change any more

    @classmethod
    def load(cls, state_dir: Path, uid: str) -> "PodFolder | None":
        """The folder of a pod recorded earlier, None when there is no whole record."""
        stored = records.read(str(state_dir / "pods" / uid / "pod.json"))
        return None if stored is None else cls(state_dir, PodRecord.from_json(stored))

    def save(self, **changes: Any) -> None:
        """Changes fields of the record, durably. Raises OSError, and then nothing has changed."""
        changed = replace(self.record, **changes)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        records.write(str(self.path / "pod.json"), changed.to_json(), durable=True)
        self.record = changed

    def run_path(self, container: str, attempt: int) -> Path:
        """The folder of one run."""
        return self.path / "runs" / container / str(attempt)

    def log_path(self, container: str, attempt: int) -> Path:
        """The log of one run."""
        return Path(self.record.logs) / container / f"{attempt}.log"

    def observe(self, boot_id: str, monotonic: float, waiting: Mapping[str, Waiting]) -> Observed:
        """The pod as its files and the process table show it at this moment."""
        same_boot = self.record.boot_id == boot_id
        return Observed(
            admitted=True,
            admitted_at=self.record.admitted_at,
            ended=self.record.ended,
            failure=self.record.failure,
            age_seconds=monotonic - self.record.admitted_monotonic if same_boot else monotonic,
            runs=self.runs(boot_id, monotonic),
            waiting=waiting,
        )

    def runs(self, boot_id: str, monotonic: float) -> dict[str, tuple[Run, ...]]:
        """All kept runs by container."""
        found: dict[str, tuple[Run, ...]] = {}
        for container in _names(self.path / "runs"):
            attempts = sorted(int(name) for name in _names(self.path / "runs" / container))
            runs = [self._run(container, attempt, boot_id, monotonic) for attempt in attempts]
            present = tuple(run for run in runs if run is not None)
            if present:
                found[container] = present
        return found

    def prune_runs(self, container: str) -> None:
        """Removes the records of runs too old to matter."""
        attempts = sorted(int(name) for name in _names(self.path / "runs" / container))
        for attempt in attempts[:-KEPT_RUNS]:
            path = self.run_path(container, attempt)
            self._exited.pop(path, None)
            shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Removes everything but the logs. The record goes last: half a removal is begun again."""
        for path in (self.tmp, self.volumes, self.work, self.path / "runs"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def _run(self, container: str, attempt: int, boot_id: str, monotonic: float) -> Run | None:
        path = self.run_path(container, attempt)
        ended = self._ended_run(path, boot_id, container, attempt, monotonic)
        if ended is not None:
            return ended
        running = records.read(str(path / records.RUNNING))
        if running is None:
            prepared = (path / records.LAUNCH).exists()
            return Run(attempt, RunState.PREPARED) if prepared else None
        same_boot = running["bootId"] == boot_id
        shim = running["shim"]
        state = RunState.LOST
        if same_boot and processes.is_alive(shim["pid"], shim["startTicks"]):
            state = RunState.RUNNING
        else:
            # It may have recorded the exit and gone since we looked for it above.
            ended = self._ended_run(path, boot_id, container, attempt, monotonic)
            if ended is not None:
                return ended
        stop = records.read(str(path / records.STOP))
        return Run(
            attempt,
            state,
            pid=running["process"]["pid"],
            started_at=running["startedAt"],
            kill_in_seconds=None if stop is None else stop["killAt"] - monotonic,
            rebooted=not same_boot,
        )

    def _ended_run(
        self, path: Path, boot_id: str, container: str, attempt: int, monotonic: float
    ) -> Run | None:
        known = self._exited.get(path)
        if known is None:
            record = records.read(str(path / records.EXIT))
            if record is None:
                return None
            ended = record["finishedMonotonic"] if record["bootId"] == boot_id else None
            known = self._exited[path] = self._read_exit(path, record, container, attempt), ended
        run, ended = known
        return replace(
            run, ended_seconds_ago=None if ended is None else max(0.0, monotonic - ended)
        )

    def _read_exit(
        self, path: Path, record: Mapping[str, Any], container: str, attempt: int
    ) -> Run:
        running = records.read(str(path / records.RUNNING)) or {}
        started = running.get("startedMonotonic", record["finishedMonotonic"])
        return Run(
            attempt,
            RunState.EXITED,
            pid=(running.get("process") or {}).get("pid", 0),
            started_at=record["startedAt"],
            finished_at=record["finishedAt"],
            exit_code=record["code"],
            signal=record["signal"],
            reason=record["reason"],
            message=record["message"]
            or self._termination_message(path, container, attempt, record),
            ran_seconds=max(0.0, record["finishedMonotonic"] - started),
        )

    def _termination_message(
        self, path: Path, container: str, attempt: int, record: Mapping[str, Any]
    ) -> str:
        launch = records.read(str(path / records.LAUNCH)) or {}
        content = b""
        with contextlib.suppress(OSError), Path(launch.get("messagePath", "")).open("rb") as file:
            content = file.read(MAX_MESSAGE_BYTES)
        if not content and record["code"] != 0 and launch.get("messageFromLogs"):
            content = tail(self.log_path(container, attempt), max_bytes=2048, max_lines=80)
        return content.decode(errors="replace").replace("\0", "�")


def load_all(state_dir: Path) -> list[PodFolder]:
    """All pods recorded in a state folder, by uid.

    One whose record is gone (half removed, or a damaged disk) comes back under a name that no pod
    can have, so that it is treated as a pod that the API server knows nothing of.
    """
    found = []
    for uid in _names(state_dir / "pods"):
        nameless = PodRecord("", uid, uid, "", "", 0.0, logs=str(state_dir / "pods" / uid / "logs"))
        found.append(PodFolder.load(state_dir, uid) or PodFolder(state_dir, nameless))
    return found


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
