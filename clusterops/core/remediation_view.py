"""What is known of a node whose faults are to be remedied. Plain values."""

from dataclasses import dataclass
from enum import StrEnum

from clusterops.api.node_health import RemediationState as State
from clusterops.api.node_health import Rung, Verdict
from clusterops.core.remediation_budget import Attempt


@dataclass(frozen=True)
class OpenIncident:
    """An incident that has not ended."""

    id: str
    verdict: Verdict
    opened_at: float
    cause: str = ""
    """The code it follows from, as `xid-79`."""
    boot_id: str = ""
    gpus: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()
    """All GPUs that a reset concerns when the hardware resets some together; none = those alone."""


class Execution(StrEnum):
    """How far the action of a rung is. It is written down before it starts: at most once."""

    NOT_STARTED = "NotStarted"
    STARTED = "Started"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Proof(StrEnum):
    """How far the checks after a repair are."""

    NONE = "None"
    RUNNING = "Running"
    PASSED = "Passed"
    FAILED = "Failed"


@dataclass(frozen=True)
class Remedy:
    """The remediation under way, as it is written down."""

    incident: str
    cause: str
    boot_id: str
    """The boot in which the fault was seen."""
    rung: Rung
    state: State
    expires: float | None = None
    """When the current state has lasted too long; None = never."""
    begun_at: float = 0.0
    executed_at: float | None = None
    execution: Execution = Execution.NOT_STARTED
    ticket: str | None = None

    @property
    def key(self) -> str:
        """What makes its action one and the same."""
        return f"{self.incident}/{self.boot_id}/{self.rung}"


@dataclass(frozen=True)
class NodeView:
    """All that is known of a node at one moment."""

    name: str
    boot_id: str
    """The boot that runs."""
    incidents: tuple[OpenIncident, ...] = ()
    remedy: Remedy | None = None
    proof: Proof = Proof.NONE
    """Of the remedy under way; an older one counts as none."""
    tainted: bool = False
    """With our taint. A person's cordon is nothing of ours."""
    jobs: tuple[str, ...] = ()
    """Jobs with pods on the node."""
    attempts: tuple[Attempt, ...] = ()
