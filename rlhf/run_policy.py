"""The policy of a run at some version, with the vocabulary it speaks: for serving, replay and export.

It is found by the folder of the run, by one of its weights files, or by one of its checkpoints. What
training alone needs is not needed here: neither the prompts nor the weights that the run began with
have to be there any more, nor the device that it was trained on.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from clusterops.train import reader
from clusterops.train.disk import PosixDisk
from clusterops.train.errors import TrainError
from clusterops.train.manifest import CHECKPOINT_NAME
from rlhf import building
from rlhf.config.resolve import ConfigurationInvalid, read_resolved
from rlhf.config.sections import Model, RunConfig
from rlhf.model.building import build
from rlhf.model.huggingface import ModelUnavailable
from rlhf.model.language import LanguageModel
from rlhf.run_folder import RunFolder
from rlhf.tasks.vocabulary import Vocabulary
from rlhf.weights import Snapshots, SnapshotUnreadable

_WEIGHTS_NAME = re.compile(r"version_(\d{8,})\.safetensors")


class NoPolicy(Exception):
    """A path leads to no policy, or to one that can't be read; the text says what is wrong."""


class RunPolicy(NamedTuple):
    """A policy in evaluation mode. `version` counts the updates behind it."""

    config: RunConfig
    model: LanguageModel
    vocabulary: Vocabulary
    version: int


def folder_of(path: Path) -> Path | None:
    """The folder of the run that a path belongs to; None when it is no run's."""
    candidates = [path]
    if path.is_file():
        candidates = [path.parent.parent]
    elif CHECKPOINT_NAME.fullmatch(path.name):
        # A job's run folder is its checkpoint directory; elsewhere checkpoints have a folder.
        candidates = [path.parent, path.parent.parent]
    return next((one for one in candidates if RunFolder(one).config.is_file()), None)


def policy_at(path: Path) -> RunPolicy:
    """The newest policy of a run's folder, or the one of a weights file or a checkpoint in it.

    Raises:
        NoPolicy: says what is missing or damaged.
    """
    folder = folder_of(path)
    if folder is None:
        raise NoPolicy(f"{path} belongs to no run: there is no {RunFolder(path).config.name}")
    if path.is_file():
        return policy_of(folder, _version_of(path))
    return policy_of(folder, None) if path == folder else _of_checkpoint(folder, path)


def policy_of(folder: Path, version: int | None = None) -> RunPolicy:
    """A policy that a run has published, by default the newest.

    Raises:
        NoPolicy: it has published no such version, or it is damaged.
    """
    snapshots = Snapshots(RunFolder(folder).weights)
    there = snapshots.versions()
    if not there:
        raise NoPolicy(f"{folder} has no weights yet: the run has published no policy")
    chosen = there[-1] if version is None else version
    if chosen not in there:
        shown = ", ".join(map(str, there))
        raise NoPolicy(f"{snapshots.folder} holds versions: {shown}; {chosen} is not there")
    try:
        return _built(folder, chosen, snapshots.load(chosen))
    except SnapshotUnreadable as error:
        raise NoPolicy(str(error)) from error


def _of_checkpoint(folder: Path, path: Path) -> RunPolicy:
    match = CHECKPOINT_NAME.fullmatch(path.name)
    assert match is not None
    disk = PosixDisk()
    try:
        candidate = reader.inspect(disk, path, int(match[1]))
        state = reader.load(disk, candidate, rank=0)["objects"]["policy"]
    except (TrainError, OSError) as error:
        raise NoPolicy(f"{path}: {error}") from error
    except KeyError:
        raise NoPolicy(
            f"{path} is a checkpoint, but not of an RLHF run: no policy is in it"
        ) from None
    return _built(folder, candidate.manifest.step, state)


def _version_of(path: Path) -> int:
    found = _WEIGHTS_NAME.fullmatch(path.name)
    if found is None:
        raise NoPolicy(f"{path.name} is no weights file of a run: version_NNNNNNNN.safetensors")
    return int(found[1])


def _built(folder: Path, version: int, state: Mapping[str, Tensor]) -> RunPolicy:
    try:
        config = read_resolved(RunFolder(folder).config)
        vocabulary = vocabulary_of(config)
        model = build(_bare(config.model), vocabulary.size, config.seed)
        model.load_state_dict(dict(state))
    except (ConfigurationInvalid, ModelUnavailable, ValueError, RuntimeError, OSError) as error:
        raise NoPolicy(f"policy version {version} of {folder}: {error}") from error
    return RunPolicy(config, model, vocabulary, version)


def vocabulary_of(config: RunConfig) -> Vocabulary:
    """The vocabulary of a run, without its prompts.

    Raises:
        ModelUnavailable: it is that of a Hugging Face model that can't be loaded.
    """
    if config.task.name == "jsonl":
        return building.text_vocabulary(config)
    return building.task(config).vocabulary


def _bare(model: Model) -> Model:
    """The shape alone: where training began does not matter any more, and a GPU may be missing."""
    here = model.device if model.device == "cpu" or torch.cuda.is_available() else "cpu"
    return model.model_copy(update={"device": here, "start": None})
