"""The process that talks to NVML, so that a call which hangs on a sick GPU hangs nobody else.

It answers each line on its standard input with one round of questions and ends at the end of the
input. On SIGTERM it finishes the call that it is in, shuts NVML down and ends: a client killed in
the middle of a call can freeze the GPU for everybody.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pynvml
from msgspec.structs import replace

from health.nvml_calls import Questioner
from health.nvml_events import WAIT_MS, EventSet, OperationalSet, Pairing
from health.nvml_inventory import driver_version, inventory
from health.nvml_messages import Asking, Device, Done, Failed, Happened, Message, encode

ENDED, NVML_FAILED = 0, 3
_PR_SET_PDEATHSIG = 1


class Child:
    """One process's dealings with NVML."""

    def __init__(self, output: int) -> None:
        """`output` is the descriptor that messages are written to."""
        self._output = output
        self._writing = threading.Lock()
        self._told_to_end = False
        self._idle = False
        self._handles: dict[Device, Any] = {}
        self._pairing = Pairing()
        self._pairs = threading.Lock()
        self._listeners: list[threading.Thread] = []
        self._heard_at: dict[str, float] = {}

    def run(self) -> int:
        """Works until the input ends or SIGTERM; returns the exit status."""
        signal.signal(signal.SIGTERM, self._terminate)
        try:
            pynvml.nvmlInit()
            ready, self._handles = inventory()
        except pynvml.NVMLError as error:
            self._say(Failed("init", int(error.value)))
            return NVML_FAILED
        events = self._event_set()
        self._say(replace(ready, listens=events is not None and events.complete))
        if events is not None:
            uuids = {board.device: board.uuid for board in ready.boards if board.uuid is not None}
            self._listen(events, uuids)
        questioner = Questioner(lambda: not self._told_to_end)
        while self._next_round():
            for device, handle in self._handles.items():
                self._say(Asking(device))
                self._say(questioner.ask(device, handle))
            if not self._told_to_end:
                driver = driver_version() if ready.driver is None else None
                self._say(Done(self._silence(), driver))
        self._told_to_end = True
        for listener in self._listeners:
            listener.join()
        pynvml.nvmlShutdown()
        return ENDED

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._told_to_end = True
        if self._idle:
            self._idle = False
            raise SystemExit

    def _next_round(self) -> bool:
        if self._told_to_end:
            return False
        self._idle = True
        try:
            line = os.read(sys.stdin.fileno(), 4096)
        except SystemExit:
            return False
        self._idle = False
        return bool(line) and not self._told_to_end

    def _say(self, message: Message) -> None:
        line = encode(message) + b"\n"
        with self._writing:
            try:
                while line:
                    line = line[os.write(self._output, line) :]
            except BrokenPipeError:
                self._told_to_end = True  # the daemon is gone

    def _event_set(self) -> EventSet | None:
        try:
            events = EventSet(self._handles)
        except pynvml.NVMLError:
            return None
        return None if events.empty else events

    def _listen(self, events: EventSet, uuids: dict[Device, str]) -> None:
        """Listens in both forms where the driver has both, each in a thread of its own."""
        with_traits: OperationalSet | None = None
        try:
            with_traits = OperationalSet(uuids) if uuids else None
        except (pynvml.NVMLError, AttributeError):
            with_traits = None
        waits = [("plain", self._plainly(events, paired=with_traits is not None))]
        if with_traits is not None:
            waits.append(("traits", lambda: with_traits.wait(WAIT_MS, time.monotonic)))
        for name, wait in waits:
            self._heard_at[name] = time.monotonic()
            self._listeners.append(threading.Thread(target=self._hear, args=(name, wait)))
        for listener in self._listeners:
            listener.start()

    def _plainly(self, events: EventSet, *, paired: bool) -> Callable[[], Happened | None]:
        def wait() -> Happened | None:
            if not paired:
                return events.wait(WAIT_MS, time.monotonic)
            with self._pairs:
                longest = self._pairing.wait_ms(time.monotonic())
            return events.wait(longest, time.monotonic)

        return wait

    def _hear(self, name: str, wait: Callable[[], Happened | None]) -> None:
        paired = len(self._listeners) > 1
        while not self._told_to_end:
            heard: Happened | None = None
            try:
                heard = wait()
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    # The rounds will say what is wrong; a failing wait must not spin.
                    self._pause()
            self._heard_at[name] = now = time.monotonic()
            if not paired:
                told = [heard] if heard is not None else []
            else:
                with self._pairs:
                    told = self._pairing.due(now) if heard is None else self._pairing.heard(heard)
            for event in told:
                self._say(event)

    def _silence(self) -> float:
        """Seconds since the wait that is behind most returned."""
        now = time.monotonic()
        return max((now - at for at in self._heard_at.values()), default=0.0)

    def _pause(self) -> None:
        waiting = threading.Event()
        for _ in range(WAIT_MS // 100):
            if self._told_to_end:
                return
            waiting.wait(0.1)


def main() -> None:
    """Runs the child on standard input and output."""
    # Ends with the daemon also when that was killed; never by SIGKILL, for the reason above.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    output = os.dup(sys.stdout.fileno())
    # Whatever the library prints must not get between the messages.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.exit(Child(output).run())


if __name__ == "__main__":
    main()
