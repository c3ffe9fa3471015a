"""From a path to a model that can be asked: a run, one of its versions or checkpoints, a model folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rlhf import building
from rlhf.model.huggingface import (
    HuggingFaceVocabulary,
    ModelUnavailable,
    load_model,
    load_vocabulary,
)
from rlhf.model.language import LanguageModel
from rlhf.run_policy import NoPolicy, RunPolicy, folder_of, policy_at
from rlhf.serving.chat import PlainTemplate, Template, TokenizerTemplate
from rlhf.tasks.vocabulary import Vocabulary


class NoModel(Exception):
    """There is nothing to serve at a path; the text says what was looked for."""


class Example(NamedTuple):
    """A prompt that the model understands, to try it with."""

    prompt: str = "Hello"
    max_tokens: int = 32


EXAMPLE = Example()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, its vocabulary, and what it is called. `version` is the policy's, None for a model of
    no run; `threads` are those of the run.
    """

    name: str
    model: LanguageModel
    vocabulary: Vocabulary
    template: Template
    version: int | None = None
    example: Example = EXAMPLE
    threads: int | None = None


def load(path: Path) -> Loaded:
    """The newest policy of a run's folder, that of a weights file or checkpoint in it, or a folder
    in the Hugging Face layout.

    Raises:
        NoModel: says what is missing or damaged.
    """
    try:
        if folder_of(path) is not None:
            return _of_run(policy_at(path))
        if (path / "config.json").is_file():
            model, vocabulary = load_model(str(path)), load_vocabulary(str(path))
            name = path.resolve().name
            return Loaded(
                name,
                model.eval(),
                vocabulary,
                template_of(vocabulary),
                example=EXAMPLE._replace(prompt=_known_text(vocabulary)),
            )
    except NoPolicy as error:
        raise NoModel(str(error)) from error
    except (ModelUnavailable, ValueError, OSError) as error:
        raise NoModel(f"{path}: {error}") from error
    if not path.exists():
        raise NoModel(f"{path} does not exist")
    raise NoModel(
        f"{path} is neither the folder of a run, nor one of its weights files or checkpoints, nor a "
        "folder with a config.json in the Hugging Face layout"
    )


def _of_run(policy: RunPolicy) -> Loaded:
    config = policy.config
    # The prompts of a file may be gone.
    of_file = config.task.name == "jsonl"
    prompt = _known_text(policy.vocabulary) if of_file else building.task(config).prompt(0).text
    return Loaded(
        config.name,
        policy.model,
        policy.vocabulary,
        template_of(policy.vocabulary),
        policy.version,
        Example(prompt, config.rollout.max_new_tokens),
        config.model.threads,
    )


def _known_text(vocabulary: Vocabulary) -> str:
    """A greeting, or the first letters of a vocabulary that has no words."""
    try:
        vocabulary.encode(EXAMPLE.prompt)
    except ValueError:
        return vocabulary.decode(range(4))
    return EXAMPLE.prompt


def template_of(vocabulary: Vocabulary) -> Template:
    """The tokenizer's own template of conversations, where there is one."""
    if isinstance(vocabulary, HuggingFaceVocabulary) and vocabulary.tokenizer.chat_template:
        return TokenizerTemplate(vocabulary.tokenizer)
    return PlainTemplate()
