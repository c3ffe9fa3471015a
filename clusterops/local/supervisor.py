"""Keeps the parts of local mode running: starts them, restarts what ends, stops all in order.

A part that ends by itself is started again after a pause that doubles from 0.2 s to 10 s and starts
over once it has lived for half a minute. What the supervisor knows is written to `parts.json`
whenever it changes, so that `status` can tell it without asking anybody.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clusterops.local.parts import Part, log_file
from clusterops.local.state_folder import StateFolder, write_atomically

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
SETTLED_SECONDS = 30.0
STOP_SECONDS = 10.0
LOG_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass
class PartState:
    """What is known of one part. `pid` is None between two lives."""

    part: Part
    pid: int | None = None
    restarts: int = 0
    last_exit: int | None = None
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)


class Supervisor:
    """Runs parts as children of this process. One instance for one `up`."""

    def __init__(self, folder: StateFolder, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._states: dict[str, PartState] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    async def start(self, part: Part) -> None:
        """Starts a part and watches it from now on."""
        state = self._states[part.name] = PartState(part)
        await self._spawn(state)
        self._tasks[part.name] = asyncio.create_task(self._keep_running(state), name=part.name)

    def exit_of(self, name: str) -> int | None:
        """The exit code with which a part last ended, None while its first life goes on."""
        return self._states[name].last_exit

    def log_tail(self, name: str, lines: int = 12) -> str:
        """The end of a part's log, for messages about it."""
        try:
            text = log_file(self._folder, name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    async def stop(self) -> None:
        """Ends all parts, last started first: TERM, then KILL after STOP_SECONDS."""
        self._stopping = True
        for name in reversed(self._states):
            state = self._states[name]
            process = state.process
            if process is not None and process.returncode is None:
                _signal(process, signal.SIGTERM)
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await process.wait()
                except TimeoutError:
                    _signal(process, signal.SIGKILL)
                    await process.wait()
            task = self._tasks[name]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._folder.parts_file.unlink(missing_ok=True)

    async def _spawn(self, state: PartState) -> None:
        log = log_file(self._folder, state.part.name)
        _rotate(log)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # A group of its own: Ctrl-C in the terminal reaches the supervisor alone, which then
            # stops the parts in order.
            state.process = await asyncio.create_subprocess_exec(
                *state.part.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=self._environment,
                cwd=self._folder.root,
                process_group=0,
            )
        finally:
            os.close(descriptor)
        state.pid = state.process.pid
        self._record()

    async def _keep_running(self, state: PartState) -> None:
        pause = FIRST_PAUSE_SECONDS
        while state.process is not None:
            born = time.monotonic()
            state.last_exit = await state.process.wait()
            state.pid = None
            self._record()
            if self._stopping:
                return
            if time.monotonic() - born > SETTLED_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            state.restarts += 1
            await self._spawn(state)

    def _record(self) -> None:
        rows = [
            {
                "name": name,
                "pid": state.pid,
                "restarts": state.restarts,
                "lastExit": state.last_exit,
            }
            for name, state in self._states.items()
        ]
        write_atomically(self._folder.parts_file, json.dumps(rows, indent=2) + "\n")


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.rename(log.with_suffix(".log.1"))
