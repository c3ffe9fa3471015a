"""A round of scheduling: cycles over the heads of all queues until nothing more can be done.

One cycle: take the head of every queue, see what each could be given, put the heads in order, and
go through them, each seeing what those before it took. A head that fits is admitted; one that fits
after preemption names its victims and keeps its place, and its demand counts against the others,
so that nobody takes what its victims give back; one that cannot be served blocks its queue
(StrictFIFO) or is parked for this round (BestEffortFIFO).
"""

from collections.abc import Iterable

from clusterops.scheduling import flavors, preemption
from clusterops.scheduling.activity import cluster_queue_activity
from clusterops.scheduling.decisions import Admit, Decision, Preempt, Wait, Waiting
from clusterops.scheduling.flavors import Mode, Progress
from clusterops.scheduling.nomination import Nomination, nominate, obstacle
from clusterops.scheduling.objects import ClusterQueue, FlavorResource, Workload
from clusterops.scheduling.order import (
    admissible,
    cycle_order,
    pending_order,
    sticky_preemptors,
)
from clusterops.scheduling.quota import Usage, queue_key
from clusterops.scheduling.snapshot import Snapshot

Shape = tuple[object, ...]


def decide(snapshot: Snapshot, now: float) -> list[Decision]:
    """Everything that should happen now: admissions and preemptions in order, then who waits and why.

    `now` is in epoch seconds, used for back-off and as the time of new reservations. The same
    snapshot gives the same decisions, whatever order its objects were listed in.
    """
    scheduling_round = _Round(snapshot, float(int(now)))
    while scheduling_round.cycle():
        pass
    return scheduling_round.decisions()


def lines(snapshot: Snapshot, now: float) -> dict[str, list[Workload]]:
    """By active queue, the workloads that stand in it, in order, sticky preemptor first."""
    by_queue: dict[str, list[Workload]] = {name: [] for name in snapshot.queues}
    for workload in snapshot.pending.values():
        local = snapshot.local_queues.get((workload.namespace, workload.queue))
        if local is None or local.stop != "None" or local.terminating:
            continue
        if local.cluster_queue in by_queue and admissible(workload, now):
            by_queue[local.cluster_queue].append(workload)
    sticky = sticky_preemptors(snapshot)
    ordered: dict[str, list[Workload]] = {}
    for name, waiting in by_queue.items():
        if waiting and cluster_queue_activity(snapshot, snapshot.queues[name]).active:
            line = pending_order(waiting)
            first = [each for each in line if each.uid == sticky.get(name)]
            line = first + [each for each in line if each.uid != sticky.get(name)]
            ordered[name] = line
    return ordered


def shape(workload: Workload) -> Shape:
    """What makes two workloads of a queue equal to the scheduler: priority and demands."""
    return (
        workload.effective_priority,
        tuple(workload.reclaimable.items()),
        tuple(
            (
                pods.name,
                pods.count,
                pods.minimum,
                tuple(pods.requests.items()),
                tuple(pods.selection.labels.items()),
                pods.selection.terms,
                pods.selection.tolerations,
            )
            for pods in workload.pod_sets
        ),
    )


class _Line:
    """One queue's waiting workloads during a round; the first not yet taken out is the head."""

    def __init__(self, queue: ClusterQueue, waiting: list[Workload]) -> None:
        self.queue = queue
        self.waiting = waiting
        self.position = 0
        self.sticky: Workload | None = None
        self.out: set[str] = set()
        self._by_shape: dict[Shape, list[Workload]] = {}

    def head(self) -> Workload | None:
        if self.sticky is not None and self.sticky.uid not in self.out:
            return self.sticky
        while self.position < len(self.waiting):
            workload = self.waiting[self.position]
            if workload.uid not in self.out:
                return workload
            self.position += 1
        return None

    def take_out(self, workload: Workload) -> None:
        self.out.add(workload.uid)

    def take_out_alike(self, workload: Workload) -> tuple[tuple[str, str], ...]:
        """Takes out those that ask for the same: the answer would be the same. Returns their keys."""
        if not self._by_shape:
            for each in self.waiting:
                self._by_shape.setdefault(shape(each), []).append(each)
        alike = []
        for other in self._by_shape[shape(workload)]:
            if other.uid not in self.out:
                self.out.add(other.uid)
                alike.append(other.key)
        return tuple(alike)


class _Round:
    """The state of a round: a snapshot that moves on with each decision, and what was decided."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot = snapshot
        self.now = now
        self.done: list[Decision] = []
        self.waits: dict[str, Wait] = {}
        self.progress: dict[str, Progress] = {}
        # Where searches for flavors have stopped since the last decision that changed anything:
        # going round the flavors once more without such a change would never end.
        self.stops: set[tuple[str, str]] = set()
        self.lines = {
            name: _Line(snapshot.queues[name], waiting)
            for name, waiting in lines(snapshot, now).items()
        }

    def decisions(self) -> list[Decision]:
        """Actions in the order decided, then the waits by workload."""
        return [*self.done, *(self.waits[uid] for uid in sorted(self.waits))]

    def cycle(self) -> bool:
        """One cycle; True when anything came of it, so that another may bring more."""
        entries: list[Nomination] = []
        moved = False
        for line in self.lines.values():
            workload = line.head()
            if workload is None:
                continue
            reason, of_namespace = obstacle(self.snapshot, line.queue, workload)
            if reason:
                moved |= self._inadmissible(line, workload, reason, of_namespace)
                continue
            progress = self.progress.get(workload.uid, ())
            entries.append(nominate(self.snapshot, line.queue, workload, progress))
        entries.sort(key=lambda each: cycle_order(each.workload, each.assignment.borrowing))
        cycle = _Cycle(self.snapshot)
        for entry in entries:
            moved |= self._process(entry, cycle)
        return moved

    def _inadmissible(
        self, line: _Line, workload: Workload, reason: str, of_namespace: bool
    ) -> bool:
        """A head that may not be considered; it blocks a strict queue unless its namespace is why."""
        self._wait(Wait(workload, Waiting.INADMISSIBLE, reason))
        if line.queue.strategy == "StrictFIFO" and not of_namespace:
            return False
        line.take_out(workload)
        return True

    def _process(self, entry: Nomination, cycle: "_Cycle") -> bool:
        """Decides about one head, given what the heads before it took in this cycle."""
        mode = entry.assignment.mode
        if mode is Mode.NO_FIT:
            return self._unserved(entry, Waiting.NO_FIT)
        if mode is Mode.PREEMPT and not entry.targets:
            if entry.queue.preemption.reclaim_within_cohort != "Any":
                cycle.reserve_for_unreclaimable(entry)
            return self._unserved(entry, Waiting.NO_CANDIDATES)
        if cycle.overlaps(entry):
            text = "Workload has overlapping preemption targets with another workload"
            return self._skipped(entry, text)
        if not cycle.fits(entry):
            return self._skipped(entry, "Workload no longer fits after processing another workload")
        cycle.take(entry)
        if mode is Mode.PREEMPT:
            return self._preempt(entry)
        self._admit(entry)
        return True

    def _admit(self, entry: Nomination) -> None:
        workload, name = entry.workload, entry.queue.name
        admission = entry.assignment.admission(name)
        self.done.append(Admit(workload, admission, entry.assignment.considered))
        self.waits.pop(workload.uid, None)
        self.lines[name].take_out(workload)
        self.snapshot = self.snapshot.admitting(workload, admission, self.now)
        self.stops.clear()

    def _preempt(self, entry: Nomination) -> bool:
        """Evicts the victims that are not evicted yet; the preemptor stays at the head."""
        workload, queue = entry.workload, entry.queue
        fresh = [target for target in entry.targets if not target.workload.evicted]
        for target in fresh:
            text = preemption.message(workload, target, self.snapshot.tree, queue.name)
            self.done.append(Preempt(target.workload, workload, target.reason, text))
            self.snapshot = self.snapshot.evicting(target.workload, self.now)
            self.stops.clear()
        if queue.strategy == "BestEffortFIFO":
            self.lines[queue.name].sticky = workload
        self.progress.pop(workload.uid, None)
        count = len(entry.targets)
        text = f"{entry.assignment.message}. Pending the preemption of {count} workload(s)"
        victims = tuple(sorted(target.workload.uid for target in entry.targets))
        self._wait(Wait(workload, Waiting.PENDING_PREEMPTION, text, victims))
        return bool(fresh)

    def _skipped(self, entry: Nomination, text: str) -> bool:
        """A head that others of this cycle got in the way of: it tries again in the next."""
        self._wait(Wait(entry.workload, Waiting.SKIPPED, text))
        return self._next_flavor(entry)

    def _unserved(self, entry: Nomination, why: Waiting) -> bool:
        """A head that cannot be served: on to its next flavors, else it is parked or blocks."""
        workload, line = entry.workload, self.lines[entry.queue.name]
        if self._next_flavor(entry):
            self._wait(Wait(workload, why, entry.assignment.message))
            return True
        if line.queue.strategy == "StrictFIFO":
            self._wait(Wait(workload, why, entry.assignment.message))
            return False
        line.take_out(workload)
        alike = line.take_out_alike(workload)
        self._wait(Wait(workload, why, entry.assignment.message, alike=alike))
        return True

    def _next_flavor(self, entry: Nomination) -> bool:
        """Remembers where a search for flavors stopped; True when it goes on from there."""
        uid = entry.workload.uid
        reached = entry.assignment.progress
        stop = (uid, repr([sorted(tried.items()) for tried in reached]))
        if not flavors.flavors_left(reached) or stop in self.stops:
            self.progress.pop(uid, None)
            return False
        self.stops.add(stop)
        self.progress[uid] = reached
        return True

    def _wait(self, wait: Wait) -> None:
        self.waits[wait.workload.uid] = wait


class _Cycle:
    """What has been taken and whom preempted so far in one cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.tree = snapshot.tree
        self.usage = snapshot.usage
        self.preempted: dict[str, Workload] = {}

    def overlaps(self, entry: Nomination) -> bool:
        """True when a head before this one preempts one of its victims."""
        return any(target.workload.uid in self.preempted for target in entry.targets)

    def fits(self, entry: Nomination) -> bool:
        """True when the demand still fits once all victims, its own and those before, are gone."""
        own = {target.workload.uid: target.workload for target in entry.targets}
        usage = self._gone(self.usage, {**self.preempted, **own}.values())
        return self.tree.fits(usage, queue_key(entry.queue.name), entry.assignment.usage)

    def take(self, entry: Nomination) -> None:
        """Counts the demand of a head that goes ahead, and its victims."""
        self.preempted.update({target.workload.uid: target.workload for target in entry.targets})
        self.usage = self.tree.add(self.usage, queue_key(entry.queue.name), entry.assignment.usage)

    def reserve_for_unreclaimable(self, entry: Nomination) -> None:
        """Keeps what a head with no victims would take from quota it cannot be sure to get back."""
        key = queue_key(entry.queue.name)
        reserved: dict[FlavorResource, int] = {}
        for unit, amount in entry.assignment.usage.items():
            quota = self.tree.quota(key, unit)
            held = self.usage.at(key, unit)
            if entry.assignment.borrowing == 0:
                reserved[unit] = max(0, min(amount, quota.nominal - held))
            elif quota.borrowing_limit is None:
                reserved[unit] = amount
            else:
                reserved[unit] = min(amount, quota.nominal + quota.borrowing_limit - held)
        self.usage = self.tree.add(self.usage, key, reserved)

    def _gone(self, usage: Usage, victims: Iterable[Workload]) -> Usage:
        for victim in victims:
            assert victim.admission is not None
            key = queue_key(victim.admission.cluster_queue)
            held = self.snapshot.holding(victim.admission.cluster_queue)[victim.uid]
            usage = self.tree.remove(usage, key, held.amounts)
        return usage


def apply(snapshot: Snapshot, decisions: Iterable[Decision], now: float) -> Snapshot:
    """The snapshot after admissions and evictions came true, for simulation and forecasts."""
    admitted = []
    for decision in decisions:
        match decision:
            case Admit(workload, admission):
                snapshot = snapshot.admitting(workload, admission, now)
                admitted.append(workload.uid)
            case Preempt(victim):
                held = snapshot.holding(_queue_of(victim))[victim.uid]
                snapshot = snapshot.evicting(held.workload, now)
            case Wait():
                pass
    return snapshot.without_pending(admitted)


def _queue_of(victim: Workload) -> str:
    assert victim.admission is not None
    return victim.admission.cluster_queue
