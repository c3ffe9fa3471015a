"""The closed lists every part speaks: a job's phase, why an attempt ended, why a job waits.

Each member carries the sentence that people read; `explain`, events, status and metrics all render
these members and none invents its own. Standard library only.
"""

from enum import StrEnum


class Phase(StrEnum):
    """Where a TrainingJob is in its life. The last three are final."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    STARTING = "Starting"
    RUNNING = "Running"
    CHECKPOINTING = "Checkpointing"
    REQUEUED = "Requeued"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def final(self) -> bool:
        """True when nothing will change any more."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class Cause(StrEnum):
    """Why an attempt ended. Only USER_ERROR uses up `backoffLimit`."""

    COMPLETED = "Completed"
    USER_ERROR = "UserError"
    PREEMPTED = "Preempted"
    EVICTED = "Evicted"
    NODE_FAULT = "NodeFault"
    NODE_LOST = "NodeLost"
    START_FAILED = "StartFailed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    SUSPENDED = "Suspended"
    CANCELLED = "Cancelled"

    @property
    def sentence(self) -> str:
        """The cause in plain words."""
        return _CAUSE_SENTENCES[self]


_CAUSE_SENTENCES = {
    Cause.COMPLETED: "all ranks finished",
    Cause.USER_ERROR: "the job's own process failed",
    Cause.PREEMPTED: "its quota was given to more urgent work",
    Cause.EVICTED: "the queue took its quota back",
    Cause.NODE_FAULT: "a fault was found on its node",
    Cause.NODE_LOST: "its node stopped answering",
    Cause.START_FAILED: "its pods could not start",
    Cause.DEADLINE_EXCEEDED: "it ran for longer than activeDeadlineSeconds",
    Cause.SUSPENDED: "it was suspended by its user",
    Cause.CANCELLED: "it was cancelled by its user",
}


class WaitReason(StrEnum):
    """Why a job is not running yet, or not going on. Shown as `status.reason`."""

    NONE = ""
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_STOPPED = "QueueStopped"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    QUEUED = "Queued"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTION = "WaitingForPreemption"
    CHECKPOINT_FIRST = "CheckpointFirst"
    NEVER_FITS = "NeverFits"
    BACKING_OFF = "BackingOff"
    WAITING_FOR_NODES = "WaitingForNodes"
    WAITING_FOR_PODS = "WaitingForPods"
    SAVING_BEFORE_RELEASE = "SavingBeforeRelease"
    WAITING_FOR_PODS_TO_END = "WaitingForPodsToEnd"
    WAITING_FOR_OTHER_VICTIMS = "WaitingForOtherVictims"
    SUSPENDED = "Suspended"
    STUCK = "Stuck"

    @property
    def sentence(self) -> str:
        """The reason in plain words, empty when the job does not wait."""
        return _WAIT_SENTENCES[self]


_WAIT_SENTENCES = {
    WaitReason.NONE: "",
    WaitReason.QUEUE_NOT_FOUND: "its queue does not exist (yet)",
    WaitReason.QUEUE_STOPPED: "its queue is stopped",
    WaitReason.PRIORITY_CLASS_NOT_FOUND: "its priority class does not exist (yet)",
    WaitReason.QUEUED: "it is in its queue, which has not judged it yet",
    WaitReason.WAITING_FOR_QUOTA: "not enough free quota in its queue",
    WaitReason.WAITING_FOR_PREEMPTION: "less urgent jobs are saving to make room for it",
    WaitReason.CHECKPOINT_FIRST: "the jobs it will displace are saving first",
    WaitReason.NEVER_FITS: "it asks for more than its queue can ever have",
    WaitReason.BACKING_OFF: "it waits before its next attempt",
    WaitReason.WAITING_FOR_NODES: "no node has room for its pods",
    WaitReason.WAITING_FOR_PODS: "its pods are starting",
    WaitReason.SAVING_BEFORE_RELEASE: "it is saving before it gives its GPUs back",
    WaitReason.WAITING_FOR_PODS_TO_END: "its pods are ending",
    WaitReason.WAITING_FOR_OTHER_VICTIMS: "it gives its GPUs back together with other jobs",
    WaitReason.SUSPENDED: "it was suspended by its user",
    WaitReason.STUCK: "something that should have happened did not",
}
