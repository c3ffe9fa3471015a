"""Ends of jobs beside faults: what was expected, and whose job was hit."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from health.events import Event, JobEnded, PciAddress
from health.fold.incident import Observation

MAX_ENDS = 4096
# What the driver prints when a process with work on the GPU is ended.
TEARDOWN_CODES = ("xid:45", "xid:43", "xid:174")
_AHEAD_SECONDS = 2.0  # a job's end may be noticed a moment before the driver's word is read


class JobEnds:
    """The ends of jobs on a node, oldest first, as many as fit."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._ends: list[JobEnded] = []

    def add(self, event: Event, ended: JobEnded) -> None:
        """Remembers an end."""
        place = bisect_right(self._moments, event.at)
        self._moments.insert(place, event.at)
        self._ends.insert(place, ended)
        if len(self._ends) > MAX_ENDS:
            del self._moments[0], self._ends[0]

    def expected(self, observation: Observation, within_seconds: float) -> JobEnded | None:
        """The end decided by us that explains every report of an observation, None when one is left.

        Reports may come before the end is known or after it.
        """
        if observation.judgement.code not in TEARDOWN_CODES:
            return None
        found = None
        for run in observation.runs:
            near = self._between(
                run.first - within_seconds, run.last + within_seconds, observation.device
            )
            found = next((ended for ended in near if ended.how.by_us), None)
            if found is None:
                return None
        return found

    def hit(self, observation: Observation, within_seconds: float, since: float) -> list[str]:
        """The jobs that ended by themselves soon after a report, each once."""
        jobs: list[str] = []
        for run in observation.runs:
            if run.last < since:
                continue
            soon = self._between(
                run.first - _AHEAD_SECONDS, run.last + within_seconds, observation.device
            )
            job = next((ended.job for ended in soon if not ended.how.by_us), None)
            if job is not None and job not in jobs:
                jobs.append(job)
        return jobs

    def used_elsewhere(self, device: PciAddress | None, begin: float, end: float) -> bool:
        """Whether a job of another GPU ended in a time: then its silence means something."""
        return any(other != device for ended in self._slice(begin, end) for other in ended.devices)

    def _between(self, begin: float, end: float, device: PciAddress | None) -> Iterator[JobEnded]:
        for ended in self._slice(begin, end):
            if device is None or not ended.devices or device in ended.devices:
                yield ended

    def _slice(self, begin: float, end: float) -> list[JobEnded]:
        first, last = bisect_left(self._moments, begin), bisect_right(self._moments, end)
        return self._ends[first:last]
