"""The process that talks to NVML, so that a call which hangs on a sick GPU hangs nobody else.

It answers each line on its standard input with one round of questions and ends at the end of the
input. On SIGTERM it finishes the call that it is in, shuts NVML down and ends: a client killed in
the middle of a call can freeze the GPU for everybody.
"""

import ctypes
import os
import re
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

import pynvml

from health.nvml_calls import Questioner
from health.nvml_messages import (
    Asking,
    Board,
    Device,
    Done,
    Failed,
    Happened,
    Message,
    Ready,
    encode,
)

EVENT_WAIT_MS = 2000
# Xid, recovery action, GPU unavailable, memory retirement and its failure, poison, storm of errors.
EVENT_TYPES = 0x8 | 0x8000 | 0x4000 | 0x400 | 0x800 | 0x2000 | 0x1000 | 0x200
ENDED, NVML_FAILED = 0, 3
_NO_INSTANCE = 0xFFFFFFFF
_PR_SET_PDEATHSIG = 1
_WORD = re.compile(r"[\w.:-]{1,80}", re.ASCII)


class Child:
    """One process's dealings with NVML."""

    def __init__(self, output: int) -> None:
        """`output` is the descriptor that messages are written to."""
        self._output = output
        self._writing = threading.Lock()
        self._told_to_end = False
        self._idle = False
        self._handles: dict[Device, Any] = {}
        self._events_at = time.monotonic()
        self._listener: threading.Thread | None = None

    def run(self) -> int:
        """Works until the input ends or SIGTERM; returns the exit status."""
        signal.signal(signal.SIGTERM, self._terminate)
        try:
            pynvml.nvmlInit()
            self._say(self._inventory())
        except pynvml.NVMLError as error:
            self._say(Failed("init", int(error.value)))
            return NVML_FAILED
        self._listen()
        questioner = Questioner(lambda: not self._told_to_end)
        while self._next_round():
            for device, handle in self._handles.items():
                self._say(Asking(device))
                self._say(questioner.ask(device, handle))
            if not self._told_to_end:
                self._say(Done(time.monotonic() - self._events_at))
        self._told_to_end = True
        if self._listener is not None:
            self._listener.join()
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

    def _inventory(self) -> Ready:
        boards, silent = [], {}
        for index in range(min(pynvml.nvmlDeviceGetCount(), 64)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                pci = pynvml.nvmlDeviceGetPciInfo(handle)
            except pynvml.NVMLError as error:
                silent[str(index)] = int(error.value)
                continue
            device = (int(pci.domain), int(pci.bus), int(pci.device))
            if not (device[0] <= 0xFFFFFFFF and device[1] <= 0xFF and device[2] <= 0x1F):
                silent[str(index)] = pynvml.NVML_ERROR_UNKNOWN
                continue
            self._handles[device] = handle
            boards.append(
                Board(
                    device,
                    _word(pynvml.nvmlDeviceGetUUID, handle),
                    _word(pynvml.nvmlDeviceGetSerial, handle),
                    _word(pynvml.nvmlDeviceGetVbiosVersion, handle),
                )
            )
        return Ready(_word(pynvml.nvmlSystemGetDriverVersion), tuple(boards), silent)

    def _listen(self) -> None:
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        registered = {}
        for device, handle in self._handles.items():
            try:
                types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & EVENT_TYPES
                pynvml.nvmlDeviceRegisterEvents(handle, types, events)
            except pynvml.NVMLError:
                continue
            registered[ctypes.cast(handle, ctypes.c_void_p).value] = device
        if registered:
            self._listener = threading.Thread(target=self._hear, args=(events, registered))
            self._listener.start()

    def _hear(self, events: Any, registered: dict[int | None, Device]) -> None:
        while not self._told_to_end:
            try:
                heard = pynvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    # The rounds will say what is wrong; a failing wait must not spin.
                    self._pause()
                self._events_at = time.monotonic()
                continue
            self._events_at = time.monotonic()
            device = registered.get(ctypes.cast(heard.device, ctypes.c_void_p).value)
            if device is not None:
                self._say(
                    Happened(
                        device,
                        int(heard.eventType),
                        int(heard.eventData),
                        self._events_at,
                        _instance(heard.gpuInstanceId),
                        _instance(heard.computeInstanceId),
                    )
                )

    def _pause(self) -> None:
        waiting = threading.Event()
        for _ in range(EVENT_WAIT_MS // 100):
            if self._told_to_end:
                return
            waiting.wait(0.1)


def _word(question: Any, *arguments: Any) -> str | None:
    """A name that NVML gives, None when it has none or it is garbage."""
    try:
        answer = question(*arguments)
        text = answer.decode("ascii") if isinstance(answer, bytes) else str(answer)
    except (pynvml.NVMLError, UnicodeDecodeError, AttributeError):
        return None
    return text if _WORD.fullmatch(text) else None


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else int(number)


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
