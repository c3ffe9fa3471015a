"""The life of a TrainingJob: one pure function from what is seen to what is to be done.

    no attempt open   queued    Workload created, held, woken, released; an attempt begins when the
                                queue has admitted it
    attempt open      attempt   pods created, watched; ended on completion, failure or notice, in a
                                window that closes when the save is durable
    phase is final    finished  quota freed, finalizers removed, object deleted after its TTL

Everything that must outlive the operator is in the job's status and on its Workload, so that any
two calls, in any two processes, agree. Three orders keep quota and pods honest:

1. an attempt is in status before its first pod exists;
2. the notice (cause, deadline) is in status before anybody is told;
3. Evicted is on the Workload before the attempt's end is in status, and the quota is released
   after it: an admitted Workload without Evicted is therefore always a fresh admission.
"""

from datetime import datetime

from clusterops.api import names
from clusterops.core import actions, attempt, finished, queued
from clusterops.core.observed import Observed, TrainingJob
from clusterops.core.settings import Settings
from clusterops.core.view import View

DEFAULTS = Settings()


def decide(
    job: TrainingJob, observed: Observed, now: datetime, settings: Settings = DEFAULTS
) -> list[actions.Action]:
    """What to do now, in order; empty when there is nothing but to wait for a change."""
    view = View(job, observed, now, settings)
    if names.FINALIZER_JOB not in (job.metadata.finalizers or ()):
        # Without it nobody could end the pods in order; a job deleted before that has none.
        return [] if job.metadata.deleting else [actions.AddJobFinalizer()]
    if job.status.phase.final:
        return finished.decide(view)
    if job.status.open_attempt is not None:
        return attempt.decide(view)
    return queued.decide(view)
