"""One agent per state folder: two would start the same pods twice."""

import fcntl
import os
from pathlib import Path


class StateInUse(Exception):
    """Another agent uses the state folder; the text says which process."""


class StateLock:
    """Holds the state folder for as long as this process lives; the kernel lets go when it dies."""

    def __init__(self, state_dir: Path) -> None:
        """Makes the folder, private to its owner, and locks it.

        Raises:
            StateInUse: another agent has it.
            OSError: it cannot be made or written to.
        """
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = state_dir / "agent.lock"
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read(32).strip() or "?"
            self._file.close()
            raise StateInUse(
                f"{state_dir} is used by another node agent (process {holder}); stop that one, or"
                " give this one a state folder of its own"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Lets go of the folder."""
        self._file.close()
