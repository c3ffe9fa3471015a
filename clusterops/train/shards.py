"""Shards on disk: safetensors files, written and read as a stream while a thread hashes them.

A shard is 8 bytes of header length, a JSON header, and the blocks one behind the other, widest
items first, so that each lies at a multiple of its item size. Any safetensors reader opens them.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clusterops.train.blocks import Block, Reference, allocate, finished, memory_of
from clusterops.train.disk import CHUNK_BYTES, Disk, read_full, write_all
from clusterops.train.errors import CorruptCheckpoint
from clusterops.train.hashing import Hasher
from clusterops.train.manifest import FileRecord, shard_name, structure_name
from clusterops.train.serialization import Encoded, decode, references

SHARD_BYTES = 1 << 30
_ALIGNMENT = 64
_HEADER_LIMIT_BYTES = 256 << 20
_STRUCTURE_FORMAT = 1


def write_rank(
    disk: Disk, folder: Path, rank: int, state: Encoded, *, shard_bytes: int = SHARD_BYTES
) -> list[FileRecord]:
    """Writes and syncs all files of one rank; returns what the manifest must say of them.

    Raises:
        OSError: as the disk does; files already written stay behind in `folder`.
    """
    writers: list[_HashedFile] = []
    try:
        places: dict[str, str] = {}
        for number, group in enumerate(_grouped(state.blocks, shard_bytes)):
            name = shard_name(rank, number)
            writers.append(_write_shard(disk, folder, name, group))
            places.update((block.name, name) for block in group)
        structure = {"format": _STRUCTURE_FORMAT, "state": state.tree, "blocks": places}
        content = json.dumps(structure, separators=(",", ":")).encode()
        writers.append(_write_file(disk, folder, structure_name(rank), [memoryview(content)]))
    finally:
        records = [FileRecord(one.name, one.size, one.hasher.hexdigest()) for one in writers]
    return records


def read_rank(disk: Disk, folder: Path, rank: int, files: Mapping[str, FileRecord]) -> Any:
    """Reads one rank's state, every byte checked against the manifest's `files`, by name.

    Raises:
        CorruptCheckpoint: a file is missing, of another size, or altered.
        OSError: the disk refuses to read, for a reason other than damage.
    """
    structure_file = structure_name(rank)
    content = bytearray(_record(files, structure_file).size)
    with _CheckedFile(disk, folder, _record(files, structure_file)) as source:
        source.fill(memoryview(content))
    structure = _parsed(content, structure_file)
    if structure.get("format") != _STRUCTURE_FORMAT:
        raise CorruptCheckpoint(f"{structure_file} has an unknown format")
    wanted = references(structure["state"])
    places: Mapping[str, str] = structure["blocks"]
    if set(wanted) != set(places):
        raise CorruptCheckpoint(f"{structure_file} refers to blocks that no shard holds")
    blocks: dict[str, Any] = {}
    for shard in sorted(set(places.values())):
        blocks.update(_read_shard(disk, folder, _record(files, shard), wanted))
    missing = sorted(set(wanted) - set(blocks))
    if missing:
        raise CorruptCheckpoint(f"{missing[0]} is in none of the shards")
    return decode(structure["state"], blocks)


def verify_file(disk: Disk, folder: Path, record: FileRecord) -> None:
    """Reads a file only to check it.

    Raises:
        CorruptCheckpoint: it is missing, of another size, or altered.
    """
    with _CheckedFile(disk, folder, record) as source:
        left = record.size
        while left:
            # A fresh piece each time: the hash of the last one may still be running.
            part = bytearray(min(left, CHUNK_BYTES))
            source.fill(memoryview(part))
            left -= len(part)


class _HashedFile:
    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.hasher = Hasher()


def _write_shard(disk: Disk, folder: Path, name: str, group: list[Block]) -> _HashedFile:
    header: dict[str, Any] = {}
    offset = 0
    for block in group:
        header[block.name] = {
            "dtype": block.dtype,
            "shape": list(block.shape),
            "data_offsets": [offset, offset + block.size],
        }
        offset += block.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    start = memoryview(struct.pack("<Q", len(text)) + text)
    return _write_file(disk, folder, name, _parts(start, group))


def _parts(start: memoryview, group: list[Block]) -> Iterator[memoryview]:
    yield start
    for block in group:
        yield memory_of(block)


def _write_file(disk: Disk, folder: Path, name: str, parts: Iterable[memoryview]) -> _HashedFile:
    written = _HashedFile(name)
    try:
        handle = disk.create(folder / name)
        try:
            for part in parts:
                written.hasher.feed(part)
                write_all(disk, handle, part)
                written.size += len(part)
            disk.sync(handle)
        finally:
            disk.close(handle)
    except BaseException:
        written.hasher.hexdigest()  # ends its thread
        raise
    return written


def _read_shard(
    disk: Disk, folder: Path, record: FileRecord, wanted: Mapping[str, Reference]
) -> dict[str, Any]:
    loaded: dict[str, Any] = {}
    with _CheckedFile(disk, folder, record) as source:
        length_field = bytearray(8)
        source.fill(memoryview(length_field))
        (length,) = struct.unpack("<Q", length_field)
        if length > min(_HEADER_LIMIT_BYTES, record.size):
            raise CorruptCheckpoint(f"{record.name} has an impossible header")
        text = bytearray(length)
        source.fill(memoryview(text))
        header = _parsed(text, record.name)
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            reference = wanted.get(name)
            if reference is None:
                raise CorruptCheckpoint(f"{record.name} holds {name}, which nothing refers to")
            start, end = entry["data_offsets"]
            target, memory = allocate(reference)
            if len(memory) != end - start:
                raise CorruptCheckpoint(f"{name} has {end - start} bytes, not {len(memory)}")
            source.fill(memory)
            loaded[name] = (reference, target)
    return {name: finished(reference, target) for name, (reference, target) in loaded.items()}


class _CheckedFile:
    """A file read from start to end, whose size is checked first and whose hash last."""

    def __init__(self, disk: Disk, folder: Path, record: FileRecord) -> None:
        self._disk = disk
        self._record = record
        self._path = folder / record.name
        self._read = 0

    def __enter__(self) -> "_CheckedFile":
        try:
            self._handle = self._disk.open(self._path)
        except FileNotFoundError:
            raise CorruptCheckpoint(f"{self._record.name} is missing") from None
        size = self._disk.size(self._handle)
        if size != self._record.size:
            self._disk.close(self._handle)
            raise CorruptCheckpoint(
                f"{self._record.name} has {size} bytes instead of {self._record.size}"
            )
        self._hasher = Hasher()
        return self

    def fill(self, memory: memoryview) -> None:
        if read_full(self._disk, self._handle, memory) != len(memory):
            raise CorruptCheckpoint(f"{self._record.name} ends too early")
        self._read += len(memory)
        self._hasher.feed(memory)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._disk.close(self._handle)
        digest = self._hasher.hexdigest()
        if kind is not None and not issubclass(kind, CorruptCheckpoint | ValueError | KeyError):
            return
        if self._read != self._record.size or digest != self._record.sha256:
            raise CorruptCheckpoint(f"{self._record.name} does not match its checksum")


def _grouped(blocks: list[Block], shard_bytes: int) -> list[list[Block]]:
    """Cuts the blocks into files of about `shard_bytes`, widest items first in each."""
    groups: list[list[Block]] = []
    room = 0
    for block in sorted(blocks, key=lambda one: -one.item_bytes):
        if not groups or block.size > room:
            groups.append([])
            room = shard_bytes
        groups[-1].append(block)
        room -= block.size
    return groups


def _record(files: Mapping[str, FileRecord], name: str) -> FileRecord:
    record = files.get(name)
    if record is None:
        raise CorruptCheckpoint(f"the manifest does not list {name}")
    return record


def _parsed(content: bytearray, name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(bytes(content))
    except ValueError as error:
        raise CorruptCheckpoint(f"{name} is unreadable: {error}") from None
    if not isinstance(parsed, dict):
        raise CorruptCheckpoint(f"{name} is unreadable: not an object")
    return parsed
