"""A kernel log as a FIFO or file, with the numbering and the record format of the real one."""

import os
from pathlib import Path


def record(
    sequence: int, text: str, *, seconds: float = 1.0, facility: int = 0, extra: str = ""
) -> bytes:
    """One record as /dev/kmsg would hand it out, with its line end."""
    escaped = "".join(
        chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}"
        for b in text.encode("utf-8", "replace")
    )
    priority = facility * 8 + 4
    return f"{priority},{sequence},{int(seconds * 1e6)},-{extra};{escaped}\n".encode()


class FakeKmsg:
    """Appends records to a file or FIFO."""

    def __init__(self, path: Path, *, fifo: bool = False, first: int = 0) -> None:
        self.path = path
        self.sequence = first
        self._fd = -1
        if fifo:
            os.mkfifo(path)
            self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        else:
            path.touch()

    def say(self, text: str, *, seconds: float = 1.0, facility: int = 0) -> int:
        """Writes one record; returns its number."""
        number = self.sequence
        self.sequence += 1
        self.raw(record(number, text, seconds=seconds, facility=facility))
        return number

    def lose(self, count: int) -> None:
        """Numbers that nobody will ever see."""
        self.sequence += count

    def raw(self, content: bytes) -> None:
        """Writes bytes as they are."""
        if self._fd >= 0:
            os.write(self._fd, content)
        else:
            with self.path.open("ab") as file:
                file.write(content)

    def close(self) -> None:
        """Closes the FIFO's end."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
