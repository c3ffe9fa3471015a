"""What can go wrong in a training job's session, as types. Every message says what to do about it."""

EXIT_CODE_LEFT = 143
"""A job that saved and left because it was told to: what a process ended by TERM shows (128 + 15).

Not 0, so that no scheduler takes a job that still has work to do for a finished one. The operator
knows from its own notice that the exit was a preemption, whatever the code.
"""

EXIT_CODE_PORT_TAKEN = 75
"""The rendezvous port is taken: nothing was started, the same job may be tried again elsewhere."""


class TrainError(Exception):
    """Base of every error of `clusterops.train`."""


class ConfigurationError(TrainError):
    """The session was asked for something it cannot do; the message names the argument."""


class StaleAttempt(TrainError):
    """A newer attempt of this job has taken over: this one commits nothing more and must stop."""


class DirectoryRefused(TrainError):
    """The checkpoint directory belongs to another job."""


class CorruptCheckpoint(TrainError):
    """A checkpoint is incomplete or does not match its checksums."""


class UnsupportedFormat(TrainError):
    """A checkpoint was written by a newer version of this library."""


class UnsupportedState(TrainError):
    """A state holds something that can't be stored without pickle; the message says where."""


class ResumeMismatch(TrainError):
    """The checkpoint is good, but the objects given to `resume` are not those it was made of."""


class NothingToResume(TrainError):
    """There are checkpoints, but none is readable: starting afresh would hide that."""


class SaveFailed(TrainError):
    """A checkpoint could not be written. Raised at the first step after the failure."""


class StorageRefused(SaveFailed):
    """The storage could not take a checkpoint for a reason that may pass: it is full, over its quota,
    or had an I/O error. A save that only came due is then tried again at the next one; one on notice,
    at the end, or that the job itself asked for ends the training.
    """


class RankFailed(TrainError):
    """Another rank failed in a step that all ranks take together."""


class NothingTrained(TrainError):
    """The job resumed before its last step and left without training a single one."""


class Leave(SystemExit):
    """The job was told to leave and its state is durable. Ends the process with code 143."""

    def __init__(self, reason: str) -> None:
        super().__init__(EXIT_CODE_LEFT)
        self.reason = reason

    def __str__(self) -> str:
        return f"leaving as asked: {self.reason}"


class PortTaken(SystemExit):
    """Another process listens on the rendezvous port. Ends the process with code 75."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(EXIT_CODE_PORT_TAKEN)
        self.address = address
        self.port = port

    def __str__(self) -> str:
        return (
            f"port {self.port} on {self.address} is taken by another process; "
            "set MASTER_PORT to a free one, or start the job again"
        )
