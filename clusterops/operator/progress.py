"""What a heartbeat sets in motion: nothing for a mere step, a decision at once where one waits for it.

Steps alone reach the job's status about once a minute, the first ones of an attempt at once. So that
thousands of ranks that report every second cost almost nothing, a report of steps only plants one
delayed look per job.
"""

from collections.abc import Callable

from clusterops.core.observed import TrainingJob
from clusterops.core.progress import milestones, seconds_until_look
from clusterops.core.settings import Settings
from clusterops.kube.store import Key
from clusterops.operator.clock import SteadyClock
from clusterops.operator.heartbeats import News


class ProgressFeed:
    """Turns news from heartbeats into keys of the controller's queue."""

    def __init__(
        self,
        enqueue: Callable[[Key], None],
        enqueue_after: Callable[[Key, float], None],
        settings: Settings,
        clock: SteadyClock,
    ) -> None:
        self._enqueue = enqueue
        self._enqueue_after = enqueue_after
        self._settings = settings
        self._clock = clock
        self._planted: dict[str, float] = {}  # job uid -> monotonic time of its next look

    def reported(self, job: TrainingJob, news: News) -> None:
        """One heartbeat of a rank of the job's current attempt."""
        attempt = job.status.open_attempt
        ending = attempt is not None and attempt.cause is not None
        unheard = attempt is not None and attempt.first_step is None
        awaited = ending or not milestones(job.status).saved
        if news.finished or (news.first and unheard) or (news.durable and awaited):
            self._enqueue(job.key)
            return
        if news.step or news.durable:
            self._plant(job)

    def forget(self, job_uid: str) -> None:
        """The job is gone or final."""
        self._planted.pop(job_uid, None)

    def _plant(self, job: TrainingJob) -> None:
        now = self._clock.monotonic()
        if self._planted.get(job.metadata.uid, 0.0) > now:
            return
        delay = seconds_until_look(job, self._clock.now(), self._settings)
        self._planted[job.metadata.uid] = now + delay
        self._enqueue_after(job.key, delay)
