"""Physical lines to records: some reports of the driver are one record with line breaks in it.

dmesg and the journal indent the further lines; they have no message of their own in front. Record by
record, and with a limit: whatever follows, memory stays bounded.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAX_LINES = 8
_OPENING = "NVRM: The NVIDIA GPU "
_MMU_FAULT = ("MMU Fault:", "Fault is of type")


class Record(NamedTuple):
    """One record: the number of its first line, and its text with line breaks where they were."""

    number: int
    text: str


def records(lines: Iterable[str]) -> Iterator[Record]:
    """The records of a log, in order; most are one line."""
    begun = 0
    parts: list[str] = []
    for number, line in enumerate(lines, start=1):
        if parts:
            if len(parts) < MAX_LINES and _goes_on(parts[0], line):
                parts.append(line)
                continue
            yield Record(begun, "\n".join(parts) if len(parts) > 1 else parts[0])
        begun = number
        parts = [line]
    if parts:
        yield Record(begun, "\n".join(parts))


def _goes_on(first: str, line: str) -> bool:
    """Whether a line belongs to the record that `first` begins, and not to the next."""
    if line[:1] in (" ", "\t"):
        text = line.strip()
        if text.startswith("NVRM:"):
            return _OPENING in first and "Xid (" not in text
        return text.startswith(_MMU_FAULT) and "Xid (" in first
    # dmesg may also repeat the stamp: the three lines of a lost GPU, each with its own prefix.
    return _OPENING in first and ("NVRM: (PCI ID:" in line or "NVRM: fallen off the bus" in line)
