"""Pods and nodes as decisions read them: what runs where, how it ended, who may take more."""

from datetime import datetime

from clusterops.api import names
from clusterops.core.observed_object import Condition, Metadata, Wire


class Terminated(Wire, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class Waiting(Wire, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True):
    """At most one is set."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """One container."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodSpec(Wire, frozen=True):
    """Where the pod runs, and how long a kubelet lets it live after TERM (seconds)."""

    node_name: str = ""
    termination_grace_period_seconds: int = 30


class PodStatus(Wire, frozen=True):
    """How the pod fares."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Wire, frozen=True):
    """One pod of a job."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def attempt(self) -> int:
        """The number of its attempt; 0 when the label is missing or no number."""
        return _number(self.metadata.label(names.LABEL_ATTEMPT))

    @property
    def rank(self) -> int:
        """Its rank among the pods of its attempt; -1 when the label is missing or no number."""
        return _number(self.metadata.label(names.LABEL_RANK), -1)

    @property
    def alive(self) -> bool:
        """True while its processes may run: until it is terminal or gone."""
        return self.status.phase not in ("Succeeded", "Failed")

    @property
    def told_to_end(self) -> bool:
        """True once it gets TERM: to end in place, or because its deletion was asked for."""
        in_place = self.metadata.annotation(names.ANNOTATION_ENDS_WITHIN)
        return self.metadata.deleting or bool(in_place)

    @property
    def exited_zero(self) -> bool:
        """True when all its containers exited 0, also when a kubelet calls that Failed because the
        pod was told to end.
        """
        if self.status.phase == "Succeeded":
            return True
        ends = [each.state.terminated for each in self.status.container_statuses or ()]
        codes = [None if end is None else end.exit_code for end in ends]
        return (
            self.told_to_end
            and not self.alive
            and bool(codes)
            and not any(code != 0 for code in codes)
        )

    @property
    def ready(self) -> bool:
        """True when it runs and does not deny being ready."""
        if self.status.phase != "Running" or self.metadata.deleting:
            return False
        found = self.condition("Ready")
        return found is None or found.true

    def condition(self, kind: str) -> Condition | None:
        """The condition of one type, None when it was never set."""
        return next((found for found in self.status.conditions or () if found.type == kind), None)

    @property
    def containers(self) -> tuple[ContainerStatus, ...]:
        """The states of all its containers, init containers first."""
        return (self.status.init_container_statuses or ()) + (self.status.container_statuses or ())


class Taint(Wire, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    """The part of a node's spec that decisions read."""

    taints: tuple[Taint, ...] | None = None


class NodeStatus(Wire, frozen=True):
    """The part of a node's status that decisions read."""

    conditions: tuple[Condition, ...] | None = None


class Node(Wire, frozen=True):
    """One node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def unready_since(self) -> datetime | None:
        """Since when it has not been Ready; None while it is, or never said."""
        for found in self.status.conditions or ():
            if found.type == "Ready" and not found.true:
                return found.last_transition_time
        return None

    def unready_at(self, moment: datetime) -> bool:
        """True when it is not Ready, or was not at that moment and has recovered since."""
        for found in self.status.conditions or ():
            if found.type == "Ready":
                since = found.last_transition_time
                return not found.true or (since is not None and since > moment)
        return False

    @property
    def faulty(self) -> bool:
        """True while a health fault keeps jobs off it."""
        return any(taint.key == names.TAINT_HEALTH for taint in self.spec.taints or ())

    @property
    def notice_seconds(self) -> float | None:
        """How long its fault leaves jobs to save; None when it is not faulty or nobody said."""
        told = self.metadata.annotation(names.ANNOTATION_NOTICE)
        return float(told) if self.faulty and told.isdecimal() else None


def _number(text: str, default: int = 0) -> int:
    return int(text) if text.isascii() and text.isdigit() else default
