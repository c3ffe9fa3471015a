"""The policy's weights on their way to rollout: one file a version, whole or absent, checked on reading.

`version_00000012.safetensors` holds the weights after 12 updates. It is written under another name,
synced and renamed, so that a reader finds all of it or nothing; its header carries a hash of all
tensors, which the reader computes again. A version may be published twice (a run that resumes makes
its updates anew): equal weights leave the file alone, others replace it.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_NAME = re.compile(r"version_(\d{8,})\.safetensors")


class SnapshotUnreadable(Exception):
    """A version's file is missing, torn, or not what was written."""


class Snapshots:
    """The folder of versions. One process publishes, any number reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def publish(self, version: int, state: Mapping[str, Tensor]) -> Path:
        """Writes a version; durable when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors, aliases = _distinct(state)
        header = _described(version, tensors, json.dumps(aliases))
        target = self.path(version)
        if _header(target) == header:
            return target
        draft = self.folder / f".draft-{version}-{os.getpid()}"
        save_file(tensors, draft, metadata=header)
        _sync(draft, os.O_RDONLY)
        draft.replace(target)
        _sync(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        return target

    def load(self, version: int, device: str = "cpu") -> dict[str, Tensor]:
        """A version's weights.

        Raises:
            SnapshotUnreadable: they are not there, or not what was published.
        """
        path = self.path(version)
        header, tensors = _read(path)
        if header != _described(version, tensors, header.get("aliases", "")):
            raise SnapshotUnreadable(
                f"policy version {version} at {path} is not what was published: its checksum or its "
                "version is another; rollout must not sample from it"
            )
        tensors |= {alias: tensors[of] for alias, of in json.loads(header["aliases"]).items()}
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    def checksum(self, version: int) -> str:
        """What a version's file says of its content.

        Raises:
            SnapshotUnreadable: it is not there, or says nothing.
        """
        found = _header(self.path(version)).get("sha256")
        if not isinstance(found, str):
            raise SnapshotUnreadable(f"{self.path(version)} carries no checksum")
        return found

    def versions(self) -> list[int]:
        """The versions that are there, in order."""
        files = self.folder.iterdir() if self.folder.is_dir() else []
        found = [_NAME.fullmatch(file.name) for file in files]
        return sorted(int(match[1]) for match in found if match)

    def retire(self, below: int) -> list[int]:
        """Removes the versions below one that nobody will ask for any more; says which."""
        gone = [version for version in self.versions() if version < below]
        for version in gone:
            self.path(version).unlink(missing_ok=True)
        return gone

    def path(self, version: int) -> Path:
        """Where a version is, or would be."""
        return self.folder / f"version_{version:08d}.safetensors"


def load_start(path: Path) -> dict[str, Tensor]:
    """The weights that a run begins with: a version of another run, or any file of such tensors.

    Raises:
        SnapshotUnreadable: there is no such file, or it is none.
    """
    header, tensors = _read(path)
    aliases = json.loads(header.get("aliases", "{}"))
    return tensors | {alias: tensors[of] for alias, of in aliases.items()}


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118 - safetensors' file is no mapping
                tensors[name] = file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise SnapshotUnreadable(f"weights at {path}: {error}") from error
    return header, tensors


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A hash over names, types, shapes and contents."""
    chain = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous().cpu()
        chain.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        chain.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return chain.hexdigest()


def _described(version: int, tensors: Mapping[str, Tensor], aliases: str) -> dict[str, str]:
    """A file's header; its hash covers the tensors and who shares whose."""
    chain = hashlib.sha256(f"{version}|{aliases}|{tensors_sha256(tensors)}".encode())
    return {"version": str(version), "aliases": aliases, "sha256": chain.hexdigest()}


def _distinct(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors without those that share another's memory, and who shares whose."""
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if tensor.numel() and place in seen:
            aliases[name] = seen[place]
            continue
        seen[place] = name
        tensors[name] = tensor.detach().contiguous().cpu()
    return tensors, aliases


def _header(path: Path) -> dict[str, Any]:
    """What the file says of itself, or nothing when there is none or it is torn."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return file.metadata() or {}
    except (OSError, SafetensorError):
        return {}


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
