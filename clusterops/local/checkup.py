"""`doctor`: is this machine, is this state folder fit for local mode? Each finding has its remedy."""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clusterops.local.errors import LocalModeError
from clusterops.local.observe import observe
from clusterops.local.state_folder import NETWORK_FILE_SYSTEMS, StateFolder, file_system_of

OLDEST_PYTHON = (3, 11)
LOWEST_FREE_BYTES = 2 * 1024**3
ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `remedy` is empty when it is as it should be.

    `needed` False marks what only some people need: it is told, and is no failure.
    """

    what: str
    found: str
    remedy: str = ""
    needed: bool = True

    @property
    def ok(self) -> bool:
        """Whether nothing must be done about it."""
        return not self.remedy or not self.needed

    def to_json(self) -> dict[str, Any]:
        """For `-o json`."""
        return {**asdict(self), "ok": self.ok}


async def run(folder: StateFolder, environ: Mapping[str, str]) -> list[Finding]:
    """Looks at everything; changes nothing."""
    findings = [
        _python(),
        _system(),
        _folder(folder),
        _space(folder),
        _database(folder),
        _kubectl(environ),
        _gpus(),
        _torch(),
    ]
    if folder.is_locked():
        findings.append(await _running(folder))
    else:
        findings += [_ports(folder), Finding("local mode", "not running")]
    return findings


def render(findings: Sequence[Finding]) -> str:
    """The findings as an aligned table, remedies below their lines."""
    lines = []
    for finding in findings:
        sign = "ok  " if not finding.remedy else ("FAIL" if finding.needed else "note")
        lines.append(f"{sign}  {finding.what:<14} {finding.found}")
        if finding.remedy:
            lines.append(f"      {'':<14} -> {finding.remedy}")
    return "\n".join(lines)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < OLDEST_PYTHON
    return Finding("Python", version, "install Python 3.11 or newer" if old else "")


def _system() -> Finding:
    fit = sys.platform == "linux" and hasattr(os, "pidfd_open")
    remedy = "" if fit else "local mode needs Linux 5.3 or newer: jobs are watched through pidfd"
    return Finding("system", sys.platform, remedy)


def _folder(folder: StateFolder) -> Finding:
    existing = folder.root
    while not existing.exists():
        existing = existing.parent
    kind = file_system_of(existing)
    if kind in NETWORK_FILE_SYSTEMS:
        remedy = "choose a folder on a local disk with --state-dir"
        return Finding("state folder", f"{folder.root} on {kind}", remedy)
    if not os.access(existing, os.W_OK | os.X_OK):
        remedy = f"make {existing} writable, or choose another folder with --state-dir"
        return Finding("state folder", f"{existing} is read-only", remedy)
    return Finding("state folder", f"{folder.root} ({kind})")


def _space(folder: StateFolder) -> Finding:
    existing = folder.root
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    remedy = "free some space: checkpoints and the database live there"
    return Finding(
        "free space", f"{free / 1024**3:.1f} GiB", "" if free > LOWEST_FREE_BYTES else remedy
    )


def _database(folder: StateFolder) -> Finding:
    if not folder.database.exists():
        return Finding("database", "none yet")
    if folder.is_locked():
        # The server holds it exclusively and checked every row when it started.
        return Finding("database", "in use by the API server")
    remedy = (
        f"restore a copy, or move {folder.database}, its -wal and its -shm file away together; `up` "
        "then starts with an empty cluster"
    )
    try:
        # Not as immutable: that would miss what only the write-ahead log holds.
        with sqlite3.connect(f"file:{folder.database}?mode=ro", uri=True, timeout=5) as database:
            verdict = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        # Said of the place and of who holds the file, not of what is in it: nothing to throw away.
        free = f"see that {folder.root} can be written and that no other program uses the database"
        return Finding("database", f"cannot be opened: {error}", free)
    except sqlite3.Error as error:
        return Finding("database", f"cannot be read: {error}", remedy)
    size = folder.database.stat().st_size / 1024**2
    return Finding("database", f"{verdict}, {size:.1f} MiB", "" if verdict == "ok" else remedy)


def _kubectl(environ: Mapping[str, str]) -> Finding:
    path = shutil.which("kubectl", path=environ.get("PATH"))
    remedy = "" if path else "install kubectl if you want to use it; clusterops does without"
    return Finding("kubectl", path or "not found", remedy, needed=False)


def _gpus() -> Finding:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Finding("GPUs", f"none ({error})", "use --gpus N to simulate some", needed=False)
    return Finding("GPUs", str(count))


def _torch() -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Finding("torch", version("torch"))
    except PackageNotFoundError:
        return Finding("torch", "not installed", 'pip install "clusterops[rlhf]"', needed=False)


def _ports(folder: StateFolder) -> Finding:
    if not folder.ports.exists():
        return Finding("ports", "not chosen yet")
    try:
        ports = folder.fixed_ports()
    except LocalModeError as error:
        return Finding("ports", str(error), error.way_out)
    return Finding("ports", ", ".join(f"{name} {port}" for name, port in ports.items()))


async def _running(folder: StateFolder) -> Finding:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            seen = await observe(folder)
    except TimeoutError:
        problem = f"no answer within {ANSWER_SECONDS:.0f} s"
    else:
        if not seen.problem:
            ready = sum(node.ready for node in seen.nodes)
            restarts = sum(part.restarts for part in seen.parts)
            what = (
                f"running, {ready} of {len(seen.nodes)} nodes ready, {restarts} restarts of parts"
            )
            lame = ready < len(seen.nodes)
            return Finding("local mode", what, _logs(folder) if lame else "")
        problem = seen.problem
    return Finding(
        "local mode", f"runs, but its API server does not answer: {problem}", _logs(folder)
    )


def _logs(folder: StateFolder) -> str:
    return f"see the logs in {Path(folder.logs)}; restart with: clusterops down && clusterops up"
