"""What is known of a pod on this machine, as values that decisions are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clusterops.nodeagent.admission import Failure


class RunState(StrEnum):
    """How far one run of a container has come.

    PREPARED: everything is written, the process is not (known to be) started. LOST: it was started,
    its shim is gone, and no exit code was recorded.
    """

    PREPARED = "Prepared"
    RUNNING = "Running"
    EXITED = "Exited"
    LOST = "Lost"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one container. Times are RFC 3339, empty when they have not come yet.

    `kill_in_seconds`: until the KILL that was asked for, negative when it is overdue, None when
    nobody asked. `ended_seconds_ago` is None when not ended, or ended before the last boot.
    """

    attempt: int
    state: RunState
    pid: int = 0
    started_at: str = ""
    finished_at: str = ""
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    ran_seconds: float = 0.0
    ended_seconds_ago: float | None = None
    kill_in_seconds: float | None = None
    rebooted: bool = False
    """The machine was booted since; of LOST runs only."""

    @property
    def alive(self) -> bool:
        """True while something of it may be running or start running."""
        return self.state in (RunState.PREPARED, RunState.RUNNING, RunState.LOST)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container is not started: a reason of Kubernetes' and the message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observed:
    """One pod as this machine knows it. `runs` of a container are in order, the newest last.

    `admitted`: its record exists. `ended`: nothing of it runs or will run again, its GPUs are free.
    `age_seconds` counts from admission, or from the boot if that was later.
    """

    admitted: bool = False
    admitted_at: str = ""
    ended: bool = False
    failure: Failure | None = None
    age_seconds: float = 0.0
    runs: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)

    def last(self, container: str) -> Run | None:
        """The newest run of a container, None when it never had one."""
        runs = self.runs.get(container, ())
        return runs[-1] if runs else None

    def alive(self) -> list[tuple[str, Run]]:
        """(container, run) of all that may be running, in the order of `runs`."""
        return [(name, run) for name, runs in self.runs.items() for run in runs if run.alive]
