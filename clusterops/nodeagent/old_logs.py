"""Logs of pods that are gone: kept for a while, since people ask why just then, and then removed."""

import contextlib
import shutil
from pathlib import Path

from clusterops.nodeagent import records


class OldLogs:
    """Remembers, in the state folder, which log folders wait for their removal."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "old-logs"

    def add(self, uid: str, logs: str, now_nanoseconds: int) -> None:
        """The pod is gone; its logs may go after the retention. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = {"logs": logs, "since": now_nanoseconds}
        records.write(str(self._folder / f"{uid}.json"), record, durable=False)

    def sweep(self, retention_seconds: float, now_nanoseconds: int) -> int:
        """Removes the log folders whose time is over; returns how many."""
        removed = 0
        for path in sorted(self._folder.glob("*.json")):
            record = records.read(str(path))
            # A clock that was set back makes logs stay longer, never shorter than asked for.
            if record and now_nanoseconds - record["since"] < retention_seconds * 1e9:
                continue
            if record:
                shutil.rmtree(record["logs"], ignore_errors=True)
            with contextlib.suppress(OSError):
                path.unlink()
            removed += 1
        return removed
