"""The end of a container's log without the marks of the log format."""

from pathlib import Path


def tail(path: Path, *, max_bytes: int, max_lines: int) -> bytes:
    """The last lines, at most so many bytes; empty when there is no log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            # Every entry carries some 45 bytes of marks.
            file.seek(max(0, size - max_bytes - max_lines * 48))
            entries = [entry + b"\n" for entry in file.read().split(b"\n")[:-1]]
    except OSError:
        return b""
    if len(entries) > max_lines:
        entries = entries[-max_lines:]
    text = b"".join(_text(entry) for entry in entries)
    return text[-max_bytes:]


def _text(entry: bytes) -> bytes:
    parts = entry.split(b" ", 3)
    if len(parts) < 4:
        return b""  # cut off by the seek
    return parts[3].rstrip(b"\n") if parts[2] == b"P" else parts[3]
