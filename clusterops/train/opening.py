"""How training code opens a session."""

import os
from pathlib import Path

from clusterops.train.options import SessionOptions
from clusterops.train.sessions import Session


def session(
    *,
    total_steps: int | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    save_every_steps: int | None = None,
    save_every_seconds: float | None = None,
    keep: int = 2,
    keep_every_seconds: float | None = None,
    adopt: bool = False,
) -> Session:
    """The session of this process; use it as a context manager. Works without an operator.

    Args:
        total_steps: optimizer steps until the job is finished; None when it ends by itself.
        checkpoint_dir: for runs without an operator. Under one, the directory that the TrainingJob
            declares counts, because it is known to outlive the pod. None there too: nothing is saved.
        save_every_steps: save after so many steps, instead of by time.
        save_every_seconds: save after so many seconds. With neither, the interval follows from what
            a save costs (see `interval`).
        keep: verified checkpoints to keep, at least 2.
        keep_every_seconds: keep one checkpoint for good each time so much training has passed.
        adopt: go on from the checkpoints of a job of another name.

    Raises:
        ConfigurationError: an argument, or what the environment says, is impossible.
    """
    return Session(
        SessionOptions(
            total_steps,
            None if checkpoint_dir is None else Path(checkpoint_dir),
            save_every_steps,
            save_every_seconds,
            keep,
            keep_every_seconds,
            adopt,
        ).checked()
    )
