"""Repetition: whether so many of a fault have come in a window that it means something graver.

Each threshold keeps its observations apart by device, place and, for boots, code, in the order of
time; a question looks back from one observation only as far as it takes to reach the number.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

from health.events import PciAddress
from health.fold.history import History
from health.fold.incident import Incident, Observation
from health.policy.schema import CodeSet, Counted, Scope, Threshold

Told = tuple[Observation, Incident]
Group = tuple[PciAddress | None, str, str]


class Counter:
    """One threshold over the observations of a node. `is_fault` tells those that count."""

    def __init__(
        self,
        threshold: Threshold,
        is_fault: Callable[[Observation, Incident], bool],
        history: History,
    ) -> None:
        self.threshold = threshold
        self._codes = CodeSet(threshold.codes)
        self._is_fault = is_fault
        self._history = history
        self._groups: dict[Group, list[Told]] | None = None
        self._moments: dict[Group, list[float]] = {}
        self._devices: list[tuple[float, float, PciAddress | None]] = []
        self._hits: dict[int, list[str]] = {}

    def concerns(self, observation: Observation) -> bool:
        """Whether the threshold is about such an observation at all."""
        judgement, threshold = observation.judgement, self.threshold
        if judgement.code not in self._codes:
            return False
        if threshold.variant and judgement.variant != threshold.variant:
            return False
        return not threshold.same_place or bool(judgement.place)

    def read(self, by_code: Mapping[str, list[Told]]) -> None:
        """Takes a node's observations in, the first time it is called."""
        if self._groups is not None:
            return
        self._groups = {}
        for told in by_code.values():
            for observation, incident in told:
                if self.concerns(observation) and self._is_fault(observation, incident):
                    self._groups.setdefault(self._group(observation), []).append(
                        (observation, incident)
                    )
                    self._devices.append(
                        (observation.first_at, observation.last_at, observation.device)
                    )
        for group, members in self._groups.items():
            members.sort(key=lambda each: each[0].first_at)
            self._moments[group] = [observation.first_at for observation, _ in members]

    def reached(self, observation: Observation) -> str | None:
        """What was counted when the threshold is reached as of an observation, else None."""
        end = observation.last_at
        begin = end - self.threshold.window_seconds
        if self.threshold.others_quiet and not self._stands_out(observation, begin, end):
            return None
        number = self._number(observation, begin, end)
        if number < self.threshold.at_least:
            return None
        window = f"{self.threshold.window_seconds:g} s"
        return f"{number} {self.threshold.counted} of {self.threshold.at_least} in {window}"

    def _group(self, observation: Observation) -> Group:
        threshold, judgement = self.threshold, observation.judgement
        return (
            observation.device if threshold.scope is Scope.GPU else None,
            judgement.place if threshold.same_place else "",
            judgement.code if threshold.counted is Counted.BOOTS else "",
        )

    def _window(self, observation: Observation, begin: float, end: float) -> Iterable[Told]:
        """The members within the window, newest first."""
        group = self._group(observation)
        members = (self._groups or {}).get(group, [])
        for place in range(bisect_right(self._moments.get(group, []), end) - 1, -1, -1):
            if members[place][0].last_at >= begin:
                yield members[place]

    def _number(self, observation: Observation, begin: float, end: float) -> int:
        """The count, no further than needed to see that it is reached."""
        counted, needed = self.threshold.counted, self.threshold.at_least
        events = 0
        distinct: set[object] = set()
        for each, incident in self._window(observation, begin, end):
            if counted is Counted.EVENTS:
                events += each.count_since(begin)
            elif counted is Counted.INCIDENTS:
                distinct.add(incident.id)
            elif counted is Counted.GPUS:
                distinct.add(each.device)
            elif counted is Counted.BOOTS:
                distinct.add(each.boot)
            else:
                distinct.update(self._jobs(each, begin))
            if max(events, len(distinct)) >= needed:
                break
        return max(events, len(distinct))

    def _jobs(self, observation: Observation, begin: float) -> list[str]:
        known = self._hits.get(id(observation))
        if known is None or observation.first_at < begin:
            blame = self._history.policy.jobs.blame_seconds
            known = self._history.jobs.hit(observation, blame, begin)
            self._hits[id(observation)] = known
        return known

    def _stands_out(self, observation: Observation, begin: float, end: float) -> bool:
        """Whether other GPUs were in use in the window and did not show the fault."""
        if any(
            last >= begin and first <= end and device != observation.device
            for first, last, device in self._devices
        ):
            return False
        return self._history.jobs.used_elsewhere(observation.device, begin, end)
