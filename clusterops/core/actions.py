"""What can be done about a job: frozen values that print themselves and change nothing.

`decide` returns a list of these; the operator applies them in order and stops at the first that
fails. Every one may be applied twice, or not at all after a crash: the next decision sees what is
missing. `needs_certainty` marks those that would do harm when decided on an outdated view; they
are decided again on objects read from the server at that moment.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from clusterops.core.observed import JobStatus


class Action(msgspec.Struct, frozen=True):
    """Base of all actions."""

    needs_certainty: ClassVar[bool] = False


# On the job


class AddJobFinalizer(Action, frozen=True):
    """From now on the job's deletion waits until its pods have ended."""


class RemoveJobFinalizer(Action, frozen=True):
    """Nothing of the job is left; its object may go."""


class WriteStatus(Action, frozen=True):
    """Replaces the job's status, if it is still the one that the decision was based on.

    `certain` is False for a write that follows from the absence of something.
    """

    status: JobStatus
    certain: bool = True


class DeleteJob(Action, frozen=True):
    """The finished job has outlived its ttlSecondsAfterFinished."""


# On its Workload


class CreateWorkload(Action, frozen=True):
    """Puts the job into its queue."""

    body: Mapping[str, Any]


class UpdateWorkload(Action, frozen=True):
    """A merge patch of a Workload without reservation: priority, queue, pod sets, active, boost."""

    why: str
    patch: Mapping[str, Any]


class EvictWorkload(Action, frozen=True):
    """Sets Evicted=True ourselves; quota stays held until the release."""

    needs_certainty: ClassVar[bool] = True

    reason: str
    message: str


class CancelEviction(Action, frozen=True):
    """Sets Evicted=False: whatever the quota was wanted for has gone away, the job goes on."""

    needs_certainty: ClassVar[bool] = True

    reason: str
    message: str


class SetPodsReady(Action, frozen=True):
    """Tells the queue that all ranks run."""

    needs_certainty: ClassVar[bool] = True


class ReleaseQuota(Action, frozen=True):
    """The one status write that gives the quota back. Decided only when no pod is alive.

    `hold` keeps the Workload out of the queue afterwards; `ran_seconds` is added to its past time.
    """

    needs_certainty: ClassVar[bool] = True

    hold: bool
    message: str
    ran_seconds: int = 0


class HoldWorkload(Action, frozen=True):
    """Keeps a waiting Workload out of the queue (OnHold)."""

    message: str


class WakeWorkload(Action, frozen=True):
    """Ends a hold, and undoes a Requeued=False that would keep a reactivated Workload out."""


class FinishWorkload(Action, frozen=True):
    """Sets Finished=True, which frees the quota for good. Decided only when no pod is alive."""

    needs_certainty: ClassVar[bool] = True

    reason: str
    message: str


class RemoveWorkloadFinalizer(Action, frozen=True):
    """The Workload holds nothing any more; it may be deleted."""

    needs_certainty: ClassVar[bool] = True


class DeleteWorkload(Action, frozen=True):
    """Removes a Workload that can never be admitted again; another takes its place."""


# On the pods of an attempt


class CreateSecret(Action, frozen=True):
    """The token and CA with which the attempt's ranks report. The token itself is not in here."""

    attempt: int


class CreateService(Action, frozen=True):
    """The headless Service through which ranks find each other."""

    body: Mapping[str, Any]


class CreatePod(Action, frozen=True):
    """Starts one rank. Decided only while the quota is held and no other attempt is alive."""

    needs_certainty: ClassVar[bool] = True

    rank: int
    body: Mapping[str, Any]


class EndPod(Action, frozen=True):
    """TERM now, KILL after `grace_seconds`; the pod's object stays, and with it what it printed.

    A deadline that has passed makes every kubelet do so. It keeps to the pod's own
    terminationGracePeriodSeconds, our node agent to `grace_seconds`.
    """

    needs_certainty: ClassVar[bool] = True

    name: str
    uid: str
    grace_seconds: int
    why: str


class DeletePod(Action, frozen=True):
    """TERM now, KILL after `grace_seconds`, and the object goes. 0 forgets the pod of a node that
    is proven dead.
    """

    needs_certainty: ClassVar[bool] = True

    name: str
    uid: str
    grace_seconds: int
    why: str


# Time


class Wake(Action, frozen=True):
    """Decide again after this long, even if nothing changes."""

    after_seconds: float
    why: str


def needs_certainty(actions: list[Action]) -> bool:
    """True when at least one of the actions must be decided on freshly read objects."""
    return any(
        action.needs_certainty or (isinstance(action, WriteStatus) and not action.certain)
        for action in actions
    )
