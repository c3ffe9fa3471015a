"""Journal records as bytes: framed, numbered, checksummed; a torn tail told from damage.

    magic (2) | payload length (4) | crc32 of number and payload (4) | record number (8) | payload

Numbers rise through the life of a run, also across restarts and compaction. After every fsync the
first record written is `Durable`, which says up to where the disk is known to be good. So broken
bytes behind the last such mark are the tail of a crash, and broken bytes before it are damage.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from rlhf.journal_records import AnyRecord, Durable, Record

MAGIC = b"\xc7J"
_HEADER = struct.Struct("<2sIIQ")
_HEAD = struct.Struct("<2sII")
_NUMBER = struct.Struct("<Q")
MAX_RECORD_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_MARK_BYTES = 64  # more than a Durable needs

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyRecord)


class JournalDamaged(Exception):
    """Bytes that were safely on the disk have changed: this is no torn tail."""


class Numbered(NamedTuple):
    """A record and its number."""

    number: int
    record: AnyRecord


class Tail(NamedTuple):
    """How a journal ends: where the last intact record ends, its successor's number, and what
    torn bytes follow.
    """

    end: int
    next_number: int
    torn_bytes: int


def framed(number: int, record: Record) -> bytes:
    """One record as bytes."""
    payload = _encoder.encode(record)
    numbered = _NUMBER.pack(number) + payload
    return _HEAD.pack(MAGIC, len(payload), crc32(numbered)) + numbered


class FrameReader:
    """Iterates over the intact records of a file, from its start; then `tail` says how it ends.

    Raises while iterating:
        JournalDamaged: bytes are broken before a mark that says they were durable.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._chunk, self._at, self._base = b"", 0, 0
        self.tail = Tail(0, 0, 0)

    def __iter__(self) -> Iterator[Numbered]:
        last = -1
        head, size, unpack, decode = _HEAD.size, _HEADER.size, _HEADER.unpack_from, _decoder.decode
        # Most records lie whole in the chunk that was read: those take no call of ours.
        while len(self._chunk) - self._at >= size or self._ensure(size):
            chunk, at = self._chunk, self._at
            magic, length, checksum, number = unpack(chunk, at)
            if magic != MAGIC or length > MAX_RECORD_BYTES or number <= last:
                break
            end = at + size + length
            if end > len(chunk):
                if not self._ensure(size + length):
                    break
                chunk, at, end = self._chunk, 0, size + length
            # The checksum is over number and payload, which lie behind one another.
            if crc32(chunk[at + head : end]) != checksum:
                break
            try:
                record = decode(chunk[at + size : end])
            except msgspec.MsgspecError as error:
                raise JournalDamaged(
                    f"record {number} at byte {self._base + at} is intact and makes no sense: "
                    f"{error}; was it written by a newer version of this program?"
                ) from None
            self._at = end
            last = number
            yield Numbered(number, record)
        self._finish(last)

    def _ensure(self, wanted: int) -> bool:
        """Reads on until `wanted` bytes lie ahead; False when the file has fewer."""
        have = len(self._chunk) - self._at
        if have >= wanted:
            return True
        parts = [self._chunk[self._at :]]
        while have < wanted:
            read = self._source.read(max(_CHUNK_BYTES, wanted - have))
            if not read:
                break
            parts.append(read)
            have += len(read)
        self._base += self._at
        self._chunk, self._at = b"".join(parts), 0
        return have >= wanted

    def _finish(self, last: int) -> None:
        end = self._base + self._at
        rest = self._chunk[self._at :] + self._source.read()
        mark = _durable_mark(rest, last + 1)
        if mark is not None:
            raise JournalDamaged(
                f"record {last + 1} at byte {end} is broken, although everything before record "
                f"{mark} was safely on the disk: restore the file from a copy, or begin a new run"
            )
        self.tail = Tail(end, last + 1, len(rest))


def _durable_mark(rest: bytes, number: int) -> int | None:
    """What an intact `Durable` among broken bytes says, if it covers the record `number`."""
    at = rest.find(MAGIC)
    while at >= 0:
        if len(rest) - at >= _HEADER.size:
            _, length, checksum, _ = _HEADER.unpack_from(rest, at)
            begin = at + _HEADER.size
            whole = length <= _MARK_BYTES and begin + length <= len(rest)
            if whole and crc32(rest[at + _HEAD.size : begin + length]) == checksum:
                record = _decoder.decode(rest[begin : begin + length])
                if isinstance(record, Durable) and record.upto > number:
                    return record.upto
        at = rest.find(MAGIC, at + 1)
    return None
