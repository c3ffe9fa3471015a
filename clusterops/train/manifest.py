"""What a checkpoint on disk says about itself, and the names that this library may touch.

A checkpoint is a directory `step_00003050/` with shards and one `manifest.json` that names every
shard with size and sha256. A directory without a valid manifest is no checkpoint. Names not listed
here are never read, moved or removed.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterops.train.errors import CorruptCheckpoint, UnsupportedFormat

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
MANIFEST_LIMIT_BYTES = 64 << 20

CHECKPOINT_NAME = re.compile(r"step_(\d{8,})")
STAGING_NAME = re.compile(r"\.staging-(\d+)-step_(\d{8,})")
DISCARDED_NAME = re.compile(r"\.discarded-(\d+)-step_(\d{8,})")
QUARANTINED_NAME = re.compile(r"\.quarantined-(\d+)-step_(\d{8,})")
CLAIM_NAME = re.compile(r"epoch_(\d{6,})\.json")
SHARD_NAME = re.compile(r"rank_\d{5,}(_\d{3,}\.safetensors|\.json)")

_SHA256 = re.compile(r"[0-9a-f]{64}")


def checkpoint_name(step: int) -> str:
    """The directory of the checkpoint after `step` steps."""
    return f"step_{step:08d}"


def staging_name(epoch: int, step: int) -> str:
    """Where a checkpoint is written until it is whole."""
    return f".staging-{epoch}-{checkpoint_name(step)}"


def discarded_name(epoch: int, step: int) -> str:
    """What a checkpoint is called while it is being removed."""
    return f".discarded-{epoch}-{checkpoint_name(step)}"


def quarantined_name(number: int, step: int) -> str:
    """Where a damaged checkpoint is kept for whoever wants to know why."""
    return f".quarantined-{number}-{checkpoint_name(step)}"


def structure_name(rank: int) -> str:
    """The file with one rank's values, and the shape of everything else."""
    return f"rank_{rank:05d}.json"


def shard_name(rank: int, number: int) -> str:
    """One file of one rank's tensors."""
    return f"rank_{rank:05d}_{number:03d}.safetensors"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose checkpoints these are. All empty and 0 for a job that runs without an operator."""

    namespace: str = ""
    name: str = ""
    job_uid: str = ""
    attempt: int = 0

    def same_job_as(self, other: "Identity") -> bool:
        """Whether both are (attempts of) the job of one name."""
        return (self.namespace, self.name) == (other.namespace, other.name)

    def __str__(self) -> str:
        if not self.name:
            return "a job without an operator"
        return f"{self.namespace}/{self.name} (attempt {self.attempt})"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a checkpoint. `size` in bytes, `sha256` as 64 hex digits."""

    name: str
    size: int
    sha256: str

    def to_wire(self) -> dict[str, Any]:
        """As the manifest lists it."""
        return {"name": self.name, "size": self.size, "sha256": self.sha256}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "FileRecord":
        """Reads one entry of the list.

        Raises:
            CorruptCheckpoint: a field is missing or wrong, or the name could lead elsewhere.
        """
        record = cls(_text(wire, "name"), _count(wire, "size"), _text(wire, "sha256"))
        if not SHARD_NAME.fullmatch(record.name) or not _SHA256.fullmatch(record.sha256):
            raise CorruptCheckpoint(f"the manifest lists an impossible file: {record!r}")
        return record


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint. Checkpoints are ordered by (`epoch`, `step`).

    `resume` is what may be known without reading shards: the objects saved, seconds trained.
    `order_digest` chains the ids of all consumed data, empty where no cursor was saved.
    `permanent` checkpoints are kept for good.
    """

    step: int
    epoch: int
    identity: Identity
    world_size: int
    files: tuple[FileRecord, ...]
    resume: Mapping[str, Any] = field(default_factory=dict)
    order_digest: str = ""
    permanent: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Newer checkpoints compare higher."""
        return (self.epoch, self.step)

    def to_bytes(self) -> bytes:
        """The file's content: JSON that ends with a checksum of itself."""
        body = {
            "formatVersion": FORMAT_VERSION,
            "step": self.step,
            "epoch": self.epoch,
            "namespace": self.identity.namespace,
            "name": self.identity.name,
            "jobUid": self.identity.job_uid,
            "attempt": self.identity.attempt,
            "worldSize": self.world_size,
            "files": [record.to_wire() for record in self.files],
            "resume": dict(self.resume),
            "orderDigest": self.order_digest,
            "permanent": self.permanent,
        }
        body["sha256"] = _digest(body)
        return _written(body)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Manifest":
        """Reads a manifest.

        Raises:
            CorruptCheckpoint: it is torn or altered.
            UnsupportedFormat: it is whole, and of a newer version.
        """
        try:
            body = json.loads(content)
        except ValueError as error:
            raise CorruptCheckpoint(f"the manifest is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise CorruptCheckpoint("the manifest is not a JSON object")
        if _written(body) != content:
            raise CorruptCheckpoint("the manifest was altered: this is not how it is written")
        if body.pop("sha256", None) != _digest(body):
            raise CorruptCheckpoint("the manifest does not match its own checksum")
        version = _count(body, "formatVersion")
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"the checkpoint has format {version}, this library reads up to {FORMAT_VERSION}; "
                "upgrade clusterops in the job's environment"
            )
        files = body.get("files")
        if not isinstance(files, list):
            raise CorruptCheckpoint("the manifest has no list of files")
        return cls(
            step=_count(body, "step"),
            epoch=_count(body, "epoch"),
            identity=Identity(
                _text(body, "namespace"),
                _text(body, "name"),
                _text(body, "jobUid"),
                _count(body, "attempt"),
            ),
            world_size=_count(body, "worldSize"),
            files=tuple(FileRecord.from_wire(entry) for entry in files),
            resume=body.get("resume") or {},
            order_digest=_text(body, "orderDigest"),
            permanent=bool(body.get("permanent")),
        )


def _written(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, indent=1).encode() + b"\n"


def _digest(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _text(wire: Mapping[str, Any], name: str) -> str:
    value = wire.get(name)
    if not isinstance(value, str):
        raise CorruptCheckpoint(f"{name} in the manifest is not text")
    return value


def _count(wire: Mapping[str, Any], name: str) -> int:
    value = wire.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CorruptCheckpoint(f"{name} in the manifest is not a number from 0")
    return value
