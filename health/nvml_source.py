"""NVML as a source of events, through a child process that may hang without harm.

A call that does not return in time is told as a symptom. The child is then asked to end and given as
long as it needs: nothing here kills a process in the middle of a call. A new child takes its place
when it has ended, or beside it when it does not end.
"""

import asyncio
import logging
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from health.events import Operational, What
from health.nvml_messages import (
    Asking,
    Board,
    Device,
    Done,
    Failed,
    Happened,
    Message,
    Ready,
    Values,
    decode,
)
from health.nvml_readings import ReadingFilter

MAX_GARBAGE = 100
MAX_LINE_BYTES = 65_536
MAX_STUCK = 3
UNKNOWN_ERROR = 999

log = logging.getLogger(__name__)


class Tell(Protocol):
    """Takes what NVML told."""

    def __call__(
        self, events: Sequence[What], uptime: float, operational: Operational | None = None, /
    ) -> None:
        """What happened at an uptime in seconds, and what the driver says of it beside."""
        ...


@dataclass(frozen=True)
class Pace:
    """How often and how long, in seconds."""

    poll: float = 10.0
    deadline: float = 10.0
    """No message for so long in the middle of a round is a hang."""
    start: float = 15.0
    """The same for the beginning: loading the library and initialising."""
    patience: float = 300.0
    """A new child starts beside one that hangs for so long."""
    retry: float = 5.0
    longest_retry: float = 60.0


class ChildGone(Exception):
    """The child ended, or talks nonsense; `error` is NVML's number for the reason."""

    def __init__(self, error: int, why: str) -> None:
        super().__init__(why)
        self.error = error


class ChildHangs(Exception):
    """A call has not returned in time."""

    def __init__(self, seconds: float, device: Device | None) -> None:
        super().__init__(f"NVML does not answer for {seconds:.0f} s")
        self.seconds = seconds
        self.device = device


class NvmlSource:
    """Runs children one after the other and tells what they see."""

    def __init__(
        self,
        tell: Tell,
        readings: ReadingFilter,
        *,
        pace: Pace | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._tell_events = tell
        self.readings = readings
        self.boards: tuple[Board, ...] = ()
        self.driver: str | None = None
        self.counters: dict[Device, dict[str, int]] = {}
        self.rounds = 0
        self.restarts = 0
        self.garbage_lines = 0
        self.hanging = False
        self._pace = pace or Pace()
        self._environment = dict(environment) if environment is not None else None
        self._stuck: list[Process] = []
        self._failures = 0

    @property
    def stuck(self) -> int:
        """Children that hang in a call and were asked to end."""
        self._stuck = [child for child in self._stuck if child.returncode is None]
        return len(self._stuck)

    async def run(self) -> None:
        """Watches until cancelled."""
        while True:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "health.nvml_child",
                stdin=PIPE, stdout=PIPE, env=self._environment, limit=MAX_LINE_BYTES,
                start_new_session=True,
            )  # fmt: skip
            try:
                await self._watch(child)
            except ChildHangs as hang:
                log.warning("%s; the child is asked to end", hang)
                self.hanging = True
                seconds = max(1, int(hang.seconds))
                self._tell(self.readings.monitor(hang_seconds=seconds, device=hang.device))
            except ChildGone as gone:
                log.warning("NVML is not watched: %s", gone)
                self._failures += 1
                self._tell(self.readings.monitor(error=gone.error, device=None))
            finally:
                _ask_to_end(child)
                self._stuck.append(child)
            self.restarts += 1
            await self._until_next(child)

    async def _until_next(self, child: Process) -> None:
        """Waits until another child may start."""
        try:
            async with asyncio.timeout(self._pace.patience):
                await child.wait()
        except TimeoutError:
            log.warning("a child hangs in NVML for %g s; another one starts", self._pace.patience)
        while self.stuck >= MAX_STUCK:
            waits = [asyncio.create_task(stuck.wait()) for stuck in self._stuck]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        delay = self._pace.retry * 2 ** min(self._failures, 10)
        await asyncio.sleep(min(delay, self._pace.longest_retry) if self._failures else 0.0)

    async def _watch(self, child: Process) -> None:
        """Rounds with one child, until it ends, hangs, or another one is wanted."""
        message = await self._next(child, self._pace.start, None)
        if isinstance(message, Failed):
            raise ChildGone(message.error, f"{message.call} fails with NVML error {message.error}")
        if not isinstance(message, Ready):
            raise ChildGone(UNKNOWN_ERROR, "the child does not begin as it should")
        self.boards, self.driver = message.boards, message.driver
        self._tell(self.readings.ready(message))
        while not self.readings.restart_wanted:
            _begin_round(child)
            await self._round(child)
            await self._between_rounds(child)
        self.readings.restart_wanted = False

    async def _round(self, child: Process) -> None:
        device: Device | None = None
        while True:
            message = await self._next(child, self._pace.deadline, device)
            if isinstance(message, Asking):
                device = message.device
            elif isinstance(message, Values):
                self.counters[message.device] = message.counters
                self._tell(self.readings.values(message, time.monotonic()))
            elif isinstance(message, Happened):
                self._happened(message)
            elif isinstance(message, Done):
                break
        # How codes are decoded depends on it, so one failed question must not leave it open for ever.
        self.driver = message.driver or self.driver
        waiting = message.event_wait_seconds
        if waiting > self._pace.deadline:
            raise ChildHangs(waiting, None)
        self.rounds += 1
        self._failures = 0
        self.hanging = False
        self._tell(self.readings.monitor(device=None))

    async def _between_rounds(self, child: Process) -> None:
        """Listens for events; returns when it is time for a round, or an event wants one."""
        until = time.monotonic() + self._pace.poll
        while (left := until - time.monotonic()) > 0:
            try:
                message = await self._read(child, left)
            except TimeoutError:
                return
            if isinstance(message, Happened) and self._happened(message):
                return

    def _happened(self, message: Happened) -> bool:
        heard = self.readings.happened(message)
        # The child's clock is this machine's; a time ahead of it would be garbage.
        uptime = min(message.uptime, time.monotonic())
        self._tell_events(heard.events, uptime, heard.operational)
        return heard.ask

    async def _next(self, child: Process, deadline: float, device: Device | None) -> Message:
        try:
            return await self._read(child, deadline)
        except TimeoutError as error:
            raise ChildHangs(deadline, device) from error

    async def _read(self, child: Process, seconds: float) -> Message:
        """The child's next message. Raises TimeoutError, ChildGone."""
        assert child.stdout is not None
        async with asyncio.timeout(seconds):
            for _ in range(MAX_GARBAGE):
                try:
                    line = await child.stdout.readline()
                except ValueError:
                    break
                if not line:
                    raise ChildGone(UNKNOWN_ERROR, f"the child ended ({await child.wait()})")
                try:
                    return decode(line)
                except (msgspec.DecodeError, ValueError):
                    self.garbage_lines += 1
        raise ChildGone(UNKNOWN_ERROR, "the child talks nonsense")

    def _tell(self, events: Sequence[What]) -> None:
        if events:
            self._tell_events(events, time.monotonic())


def _begin_round(child: Process) -> None:
    assert child.stdin is not None
    if not child.stdin.is_closing():
        child.stdin.write(b"go\n")


def _ask_to_end(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.close()
    if child.returncode is None:
        child.send_signal(signal.SIGTERM)
