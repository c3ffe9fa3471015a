"""The kernel's tracing as a folder, with the files that it would have and a FIFO for what it prints."""

import os
from pathlib import Path

from health.trace_source import EVENTS, INSTANCE


def printed(event: str, text: str, *, seconds: float = 1.0, task: str = "python3-4711") -> bytes:
    """One event as the kernel prints it."""
    return f"{task:>24} [003] d..1. {seconds:12.6f}: {event}: {text}\n".encode()


class FakeTracing:
    """Has no driver until it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.instance = path / "instances" / INSTANCE
        (path / "events").mkdir(parents=True)
        # The kernel makes these when the folder of an instance is made.
        self.instance.mkdir(parents=True)
        for name, content in (("trace_clock", "[local] global mono"), ("buffer_size_kb", "1408")):
            (self.instance / name).write_text(content)
        (self.instance / "buffer_percent").write_text("50")
        os.mkfifo(self.instance / "trace_pipe")
        self._fd = os.open(self.instance / "trace_pipe", os.O_RDWR | os.O_NONBLOCK)

    def load_driver(self) -> None:
        """The driver's events are there and off, as after every load."""
        for event in EVENTS:
            (self.path / "events" / event).mkdir(parents=True, exist_ok=True)
            (self.instance / "events" / event).mkdir(parents=True, exist_ok=True)
            self.enable(event).write_text("0\n")

    def enable(self, event: str) -> Path:
        return self.instance / "events" / event / "enable"

    @property
    def on(self) -> bool:
        return all(self.enable(event).read_text().startswith("1") for event in EVENTS)

    def say(self, raw: bytes) -> None:
        """Prints as it is."""
        os.write(self._fd, raw)

    def close(self) -> None:
        os.close(self._fd)
