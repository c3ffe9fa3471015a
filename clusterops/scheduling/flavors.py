"""Which flavor each resource of a workload would come from, and what stands in the way.

Each resource of each pod set gets a mode: it fits, it fits after preemption, or it does not fit.
The flavors of a resource group are tried in their order; `flavorFungibility` says when to stop.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import msgspec

from clusterops.scheduling import quantities
from clusterops.scheduling.objects import (
    Admission,
    Amounts,
    ClusterQueue,
    FlavorFungibility,
    FlavorResource,
    NodeSelection,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    ResourceGroup,
    Workload,
)
from clusterops.scheduling.quota import queue_key
from clusterops.scheduling.snapshot import Snapshot, matches


class Mode(IntEnum):
    """How an assignment can come true, from worst to best."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


class Outlook(IntEnum):
    """What it takes to have one flavor-resource, from worst to best.

    RECLAIM takes back from other queues only; PREEMPT also stops work of the own queue.
    """

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4

    @property
    def mode(self) -> Mode:
        """The coarse mode."""
        if self is Outlook.FIT:
            return Mode.FIT
        return Mode.NO_FIT if self is Outlook.NO_FIT else Mode.PREEMPT


# Says what preemption could do for an amount of one flavor-resource, and at which borrowing level.
Oracle = Callable[[FlavorResource, int], tuple[Outlook, int]]
# By pod set and resource, the index of the flavor tried last (-1: all were); where to go on.
Progress = tuple[Mapping[str, int], ...]


class FlavorChoice(msgspec.Struct, frozen=True):
    """A flavor for one resource. `tried` is its index, -1 when it was the last to try."""

    flavor: str
    mode: Mode
    borrowing: int
    tried: int = -1


class PodSetFlavors(msgspec.Struct, frozen=True):
    """What one pod set would get. Choices are empty and reasons are not when nothing fits."""

    name: str
    count: int
    requests: Mapping[str, int]
    choices: Mapping[str, FlavorChoice]
    reasons: tuple[str, ...] = ()
    considered: tuple[str, ...] = ()

    @property
    def mode(self) -> Mode:
        """The worst mode of its resources."""
        if not self.reasons:
            return Mode.FIT
        return min((choice.mode for choice in self.choices.values()), default=Mode.NO_FIT)


class Assignment(msgspec.Struct, frozen=True):
    """Flavors for a whole workload. When one pod set cannot be served, the rest is not tried."""

    pod_sets: tuple[PodSetFlavors, ...]
    usage: Amounts
    borrowing: int

    @property
    def mode(self) -> Mode:
        """The worst mode of the pod sets."""
        return min((pods.mode for pods in self.pod_sets), default=Mode.NO_FIT)

    @property
    def message(self) -> str:
        """What stands in the way, in Kueue's words; empty when it fits."""
        return "; ".join(
            f"couldn't assign flavors to pod set {pods.name}: {', '.join(sorted(pods.reasons))}"
            for pods in self.pod_sets
            if pods.reasons
        )

    @property
    def considered(self) -> str:
        """The flavors looked at before the chosen ones, for the event."""
        return " | ".join(
            f"{pods.name}: {', '.join(pods.considered)}"
            for pods in self.pod_sets
            if pods.considered
        )

    @property
    def needing_preemption(self) -> frozenset[FlavorResource]:
        """The flavor-resources that only preemption can give."""
        return frozenset(
            FlavorResource(choice.flavor, resource)
            for pods in self.pod_sets
            for resource, choice in pods.choices.items()
            if choice.mode is Mode.PREEMPT
        )

    @property
    def progress(self) -> Progress:
        """Where the search for flavors stopped."""
        return tuple(
            {resource: choice.tried for resource, choice in pods.choices.items()}
            for pods in self.pod_sets
        )

    def admission(self, queue: str) -> Admission:
        """The reservation this assignment stands for."""
        return Admission(
            queue,
            tuple(
                PodSetAssignment(
                    pods.name,
                    pods.count,
                    {name: pods.choices[name].flavor for name in sorted(pods.choices)},
                    {name: pods.requests[name] for name in sorted(pods.choices)},
                )
                for pods in self.pod_sets
            ),
        )


def flavors_left(progress: Progress) -> bool:
    """True when a search stopped before the last flavor."""
    return any(tried != -1 for by_resource in progress for tried in by_resource.values())


def requests_of(queue: ClusterQueue, pods: PodSet, count: int) -> dict[str, int]:
    """All that `count` pods of a pod set ask for, with the pods themselves where they are quota."""
    total = {resource: amount * count for resource, amount in pods.requests.items()}
    if queue.group_of(quantities.PODS) is not None:
        total[quantities.PODS] = count
    return {resource: total[resource] for resource in sorted(total)}


def assign(
    snapshot: Snapshot,
    queue: ClusterQueue,
    workload: Workload,
    oracle: Oracle,
    *,
    counts: Sequence[int] | None = None,
    progress: Progress = (),
) -> Assignment:
    """Flavors for a workload in a queue, with fewer pods when `counts` says so."""
    if counts is None:
        wanted = workload.counts_after_reclaim()
        counts = [wanted[pods.name] for pods in workload.pod_sets]
    usage: dict[FlavorResource, int] = {}
    found: list[PodSetFlavors] = []
    borrowing = 0
    for index, pods in enumerate(workload.pod_sets):
        start = progress[index] if index < len(progress) else {}
        search = _Search(snapshot, queue, oracle, pods, usage, start)
        result = search.run(counts[index])
        found.append(result)
        for resource, choice in result.choices.items():
            borrowing = max(borrowing, choice.borrowing)
            unit = FlavorResource(choice.flavor, resource)
            usage[unit] = usage.get(unit, 0) + result.requests[resource]
        if result.mode is Mode.NO_FIT:
            break
    return Assignment(tuple(found), usage, borrowing)


class _Search:
    """The search for the flavors of one pod set, after `taken` by the pod sets before it."""

    def __init__(
        self,
        snapshot: Snapshot,
        queue: ClusterQueue,
        oracle: Oracle,
        pods: PodSet,
        taken: Amounts,
        start: Mapping[str, int],
    ) -> None:
        self.snapshot = snapshot
        self.queue = queue
        self.oracle = oracle
        self.pods = pods
        self.taken = taken
        self.start = start
        self.considered: list[str] = []

    def run(self, count: int) -> PodSetFlavors:
        requests = requests_of(self.queue, self.pods, count)
        choices: dict[str, FlavorChoice] = {}
        reasons: list[str] = []
        for resource, amount in requests.items():
            if resource in choices:
                continue
            group = self.queue.group_of(resource)
            if group is None:
                if amount == 0:
                    continue
                blocked = (f"resource {resource} unavailable in ClusterQueue",)
                return PodSetFlavors(self.pods.name, count, requests, {}, blocked)
            asked = {name: each for name, each in requests.items() if name in group.covered}
            picked, obstacles = self._pick(group, asked, self.start.get(resource, -1) + 1)
            if not picked:
                obstacles = obstacles or [f"resource {resource} unavailable in ClusterQueue"]
                return PodSetFlavors(
                    self.pods.name, count, requests, {}, tuple(obstacles), tuple(self.considered)
                )
            choices.update(picked)
            reasons.extend(obstacles)
        return PodSetFlavors(
            self.pods.name, count, requests, choices, tuple(reasons), tuple(self.considered)
        )

    def _pick(
        self, group: ResourceGroup, asked: Mapping[str, int], first: int
    ) -> tuple[dict[str, FlavorChoice], list[str]]:
        """The best flavor of a group for all its resources together, and what spoke against it."""
        reasons: list[str] = []
        best: dict[str, FlavorChoice] = {}
        best_grade = _Grade(Outlook.NO_FIT, 0)
        attempted = -1
        policy = self.queue.fungibility
        for index in range(first, len(group.flavors)):
            attempted = index
            name = group.flavors[index]
            mismatch = _mismatch(self.snapshot.flavors.get(name), name, self.pods.selection)
            if mismatch:
                reasons.append(mismatch)
                self.considered.append(f"{name}(NoFit;{mismatch})")
                continue
            choices, grade, obstacles = self._grade(name, asked)
            reasons.extend(obstacles)
            self._consider(name, grade, obstacles)
            if not _try_next(grade, policy):
                best, best_grade = choices, grade
                break
            if _preferred(grade, best_grade, policy):
                best, best_grade = choices, grade
        tried = -1 if attempted == len(group.flavors) - 1 else attempted
        best = {
            resource: msgspec.structs.replace(choice, tried=tried)
            for resource, choice in best.items()
        }
        return best, [] if best_grade.outlook is Outlook.FIT else reasons

    def _grade(
        self, flavor: str, asked: Mapping[str, int]
    ) -> tuple[dict[str, FlavorChoice], "_Grade", list[str]]:
        """What one flavor can do for all resources: the worst of them decides."""
        worst = _Grade(Outlook.FIT, 0)
        choices: dict[str, FlavorChoice] = {}
        reasons: list[str] = []
        for resource, amount in asked.items():
            unit = FlavorResource(flavor, resource)
            outlook, borrowing, reason = self._outlook(unit, amount)
            if reason:
                reasons.append(reason)
            grade = _Grade(outlook, borrowing)
            if _preferred(worst, grade, self.queue.fungibility):
                worst = grade
            if worst.outlook is Outlook.NO_FIT:
                return {}, worst, reasons
            choices[resource] = FlavorChoice(flavor, outlook.mode, borrowing)
        return choices, worst, reasons

    def _outlook(self, unit: FlavorResource, amount: int) -> tuple[Outlook, int, str]:
        """What it takes to have `amount` more of one flavor-resource."""
        tree, usage, key = self.snapshot.tree, self.snapshot.usage, queue_key(self.queue.name)
        before = self.taken.get(unit, 0)
        total = before + amount
        most = tree.potential(key, unit)
        if total > most:
            show = quantities.show
            return (
                Outlook.NO_FIT,
                0,
                f"insufficient quota for {unit.resource} in flavor {unit.flavor}, "
                f"previously considered podsets requests ({show(unit.resource, before)}) + "
                f"current podset request ({show(unit.resource, amount)}) > "
                f"maximum capacity ({show(unit.resource, most)})",
            )
        borrowing, may_reclaim = tree.reach(usage, key, unit, total)
        available = tree.available(usage, key, unit)
        if total <= available:
            return Outlook.FIT, borrowing, ""
        missing = quantities.show(unit.resource, total - available)
        reason = (
            f"insufficient unused quota for {unit.resource} in flavor {unit.flavor}, "
            f"{missing} more needed"
        )
        within_nominal = total <= tree.quota(key, unit).nominal
        if within_nominal or may_reclaim or self.queue.preemption.borrow_within_cohort != "Never":
            outlook, borrowing = self.oracle(unit, total)
            return outlook, borrowing, reason
        return Outlook.NO_FIT, borrowing, reason

    def _consider(self, flavor: str, grade: "_Grade", reasons: Sequence[str]) -> None:
        if grade.outlook is Outlook.FIT and grade.borrowing == 0:
            return
        text = {
            Outlook.NO_FIT: "NoFit",
            Outlook.NO_CANDIDATES: "preemptionMode=NoCandidates",
            Outlook.PREEMPT: "preemptionMode=Preempt",
            Outlook.RECLAIM: "preemptionMode=Reclaim",
            Outlook.FIT: "Fit",
        }[grade.outlook]
        level = f";borrow={grade.borrowing}" if grade.borrowing else ""
        self.considered.append(f"{flavor}({text}{level}{''.join(';' + why for why in reasons)})")


class _Grade(msgspec.Struct, frozen=True):
    """How good a flavor is: what it takes, and from how far its quota comes."""

    outlook: Outlook
    borrowing: int


def _preferred(one: _Grade, other: _Grade, policy: FlavorFungibility) -> bool:
    """True when `one` is strictly better than `other` under the queue's preference."""
    if one.outlook is Outlook.NO_FIT or other.outlook is Outlook.NO_FIT:
        return one.outlook is not Outlook.NO_FIT and other.outlook is Outlook.NO_FIT
    # Without candidates a flavor cannot be had now, wherever its quota would come from.
    hopeless, other_hopeless = (each.outlook is Outlook.NO_CANDIDATES for each in (one, other))
    if hopeless != other_hopeless:
        return other_hopeless
    by_outlook = one.outlook - other.outlook
    by_distance = other.borrowing - one.borrowing
    if policy.preference == "PreemptionOverBorrowing":
        return (by_distance or by_outlook) > 0
    return (by_outlook or by_distance) > 0


def _try_next(grade: _Grade, policy: FlavorFungibility) -> bool:
    """True when the search goes on although this flavor was looked at."""
    if grade.outlook in (Outlook.NO_FIT, Outlook.NO_CANDIDATES):
        return True
    if grade.outlook is not Outlook.FIT and policy.when_can_preempt == "TryNextFlavor":
        return True
    return grade.borrowing > 0 and policy.when_can_borrow == "TryNextFlavor"


def _mismatch(flavor: ResourceFlavor | None, name: str, selection: NodeSelection) -> str:
    """Why pods with this selection cannot use a flavor's nodes; empty when they can.

    Only labels that the flavor names count: about others it says nothing.
    """
    if flavor is None:
        return f"flavor {name} not found"
    tolerations = (*selection.tolerations, *flavor.tolerations)
    for taint in flavor.node_taints:
        if taint.effect not in ("NoSchedule", "NoExecute"):
            continue
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return f"untolerated taint {taint} in flavor {name}"
    labels = flavor.node_labels
    wrong = any(labels.get(key, value) != value for key, value in selection.labels.items())
    if wrong or not _affine(selection, labels):
        return f"flavor {name} doesn't match node affinity"
    return ""


def _affine(selection: NodeSelection, labels: Mapping[str, str]) -> bool:
    """True when any affinity term holds; a term about other labels only holds for every flavor."""
    if not selection.terms:
        return True
    for term in selection.terms:
        relevant = [part for part in term if part.key in labels]
        if not relevant or matches(relevant, labels):
            return True
    return False
