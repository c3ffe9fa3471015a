"""Ends of jobs beside faults: what was expected, and whose job was hit."""

from collections import deque
from collections.abc import Iterator

from health.events import Event, JobEnded, PciAddress
from health.fold.incident import Observation

MAX_ENDS = 4096
# What the driver prints when a process with work on the GPU is ended.
TEARDOWN_CODES = ("xid:45", "xid:43", "xid:174")


class JobEnds:
    """The ends of jobs on a node, oldest first, as many as fit."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, JobEnded]] = deque(maxlen=MAX_ENDS)

    def add(self, event: Event, ended: JobEnded) -> None:
        """Remembers an end."""
        self._ends.append((event.at, ended))

    def expected(self, observation: Observation, within_seconds: float) -> JobEnded | None:
        """The end decided by us that explains every report of an observation, None when one is left.

        Reports may come before the end is known or after it.
        """
        if observation.judgement.code not in TEARDOWN_CODES:
            return None
        found = None
        for run in observation.runs:
            near = [
                ended
                for at, ended in self._on(observation.device)
                if ended.how.by_us and run.first - within_seconds <= at <= run.last + within_seconds
            ]
            if not near:
                return None
            found = near[0]
        return found

    def hit(self, observation: Observation, within_seconds: float, since: float) -> list[str]:
        """The jobs that ended by themselves soon after a report, each once."""
        jobs: list[str] = []
        for run in observation.runs:
            if run.last < since:
                continue
            for at, ended in self._on(observation.device):
                soon = run.first - 2.0 <= at <= run.last + within_seconds
                if soon and not ended.how.by_us and ended.job not in jobs:
                    jobs.append(ended.job)
                    break
        return jobs

    def _on(self, device: PciAddress | None) -> Iterator[tuple[float, JobEnded]]:
        for at, ended in self._ends:
            if device is None or not ended.devices or device in ended.devices:
                yield at, ended
