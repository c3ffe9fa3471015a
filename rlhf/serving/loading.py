"""From a path to a model that can be asked: the folder of a run, one of its versions, or a model folder."""

import re
from dataclasses import dataclass
from pathlib import Path

from rlhf import building
from rlhf.config.resolve import read_resolved
from rlhf.model.building import build
from rlhf.model.huggingface import ModelUnavailable, load_model, load_vocabulary
from rlhf.model.language import LanguageModel
from rlhf.run_folder import RunFolder
from rlhf.serving.chat import PlainTemplate, Template, TokenizerTemplate
from rlhf.tasks.vocabulary import Vocabulary
from rlhf.weights import Snapshots, SnapshotUnreadable


class NoModel(Exception):
    """There is nothing to serve at a path; the text says what was looked for."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, its vocabulary, and what it is called."""

    name: str
    model: LanguageModel
    vocabulary: Vocabulary
    template: Template
    version: int


def load(path: Path) -> Loaded:
    """The newest policy of a run's folder, the policy of a weights file in it, or a model's folder.

    Raises:
        NoModel: says what is missing or damaged.
    """
    try:
        if path.is_file():
            return _of_run(path.parent.parent, _version_of(path))
        if RunFolder(path).config.exists():
            return _of_run(path, None)
        if (path / "config.json").exists():
            model, vocabulary = load_model(str(path)), load_vocabulary(str(path))
            name = path.resolve().name
            return Loaded(name, model.eval(), vocabulary, _template(vocabulary), 0)
    except (ModelUnavailable, SnapshotUnreadable, ValueError, OSError) as error:
        raise NoModel(f"{path}: {error}") from error
    raise NoModel(
        f"{path} is neither the folder of a run, nor one of its weights files, nor a model's folder"
    )


def _of_run(path: Path, version: int | None) -> Loaded:
    folder = RunFolder(path)
    config = read_resolved(folder.config)
    snapshots = Snapshots(folder.weights)
    versions = snapshots.versions()
    if not versions:
        raise NoModel(f"{path} has no weights yet: the run has published no policy")
    chosen = versions[-1] if version is None else version
    vocabulary = building.task(config).vocabulary
    model = build(config.model, vocabulary.size, config.seed)
    model.load_state_dict(snapshots.load(chosen, config.model.device))
    return Loaded(config.name, model.eval(), vocabulary, _template(vocabulary), chosen)


def _version_of(path: Path) -> int:
    found = re.fullmatch(r"version_(\d+)\.safetensors", path.name)
    if found is None:
        raise NoModel(f"{path.name} is no weights file of a run: version_NNNNNNNN.safetensors")
    return int(found[1])


def _template(vocabulary: Vocabulary) -> Template:
    """The tokenizer's own template of conversations, where there is one."""
    tokenizer = getattr(vocabulary, "_tokenizer", None)
    if getattr(tokenizer, "chat_template", None):
        return TokenizerTemplate(tokenizer)
    return PlainTemplate()
