"""From a configuration to the things it names: vocabulary, task, grader. No torch, unless a model grades.

What is heavy is named by reference (`module:name`) and loaded when it is asked for: the process with
the event loop stays small.
"""

from collections.abc import Callable
from typing import Any, Protocol

from rlhf.canaries import CanaryPlan
from rlhf.config.sections import RunConfig
from rlhf.graders.functions import FunctionGrader, load
from rlhf.graders.helpful_harmless import grader as helpful_harmless
from rlhf.graders.http_grader import HttpGrader
from rlhf.graders.processes import ProcessGrader
from rlhf.graders.protocol import Grader, Sample
from rlhf.identity import Score
from rlhf.tasks.jsonl import JsonLines
from rlhf.tasks.reverse_digits import ReverseDigits
from rlhf.tasks.sentiment import Sentiment
from rlhf.tasks.task import Task, TaskInvalid
from rlhf.tasks.vocabulary import Bytes, Vocabulary

_REWARD_MODEL = "rlhf.reward_model:RewardModelGrader"
_HUGGING_FACE_VOCABULARY = "rlhf.model.huggingface:load_vocabulary"


class Audit(Protocol):
    """A pure grader that scores at once."""

    def score(self, sample: Sample) -> Score:
        """The reward of a sample."""


def task(config: RunConfig) -> Task:
    """The task.

    Raises:
        TaskInvalid: its prompts cannot be trained on, or the response leaves no room for them.
    """
    wanted, seed = config.task, config.seed
    if wanted.name == "reverse-digits":
        return _fitting(config, ReverseDigits(seed, wanted.digits, wanted.corruption))
    if wanted.name == "sentiment":
        made = Sentiment(seed, response_characters=config.rollout.max_new_tokens)
        return _fitting(config, made)
    assert wanted.prompts is not None
    return JsonLines(wanted.prompts, None, text_vocabulary(config), seed, config.longest_prompt)


def text_vocabulary(config: RunConfig) -> Vocabulary:
    """The vocabulary for any text: of the model, or bytes."""
    if config.model.kind == "huggingface":
        made: Vocabulary = load(_HUGGING_FACE_VOCABULARY)(config.model.name)
        return made
    return Bytes()


def grader(config: RunConfig, of: Task) -> Grader:
    """Who scores.

    Raises:
        BadFunction: the user's function can't be found or called.
        TaskInvalid: the folder holds no reward model.
        ValueError: the URL or the key is of no use.
    """
    wanted = config.grader
    seconds = config.queue.grading_seconds
    if wanted.kind == "task":
        return FunctionGrader(_own_reward(of), pure=True, inline=True)
    if wanted.kind == "helpful-harmless":
        return helpful_harmless()
    if wanted.kind == "reward-model":
        made: Grader = load(_REWARD_MODEL)(wanted.model)
        return made
    if wanted.kind == "http":
        assert wanted.url is not None
        assert wanted.key_file is not None
        key = wanted.key_file.read_bytes().strip()
        return HttpGrader(wanted.url, key, timeout_seconds=seconds, pure=wanted.pure)
    assert wanted.function is not None
    function = load(wanted.function)
    if wanted.kind == "custom":
        own: Grader = function()
        return own
    if wanted.kind == "processes":
        return ProcessGrader(
            wanted.function, workers=wanted.workers, timeout_seconds=seconds, pure=wanted.pure
        )
    return FunctionGrader(function, pure=wanted.pure)


def audit(config: RunConfig, of: Task) -> Audit | None:
    """Who scores again in the trainer, or none: where scores are not pure, or not ours to compute."""
    wanted = config.grader
    if config.checks.audit_function is not None:
        return FunctionGrader(load(config.checks.audit_function), pure=True)
    if wanted.kind == "http" or (wanted.function is not None and not wanted.pure):
        return None
    if wanted.kind == "processes":
        assert wanted.function is not None
        return FunctionGrader(load(wanted.function), pure=True)
    made: Any = grader(config, of)
    return made if hasattr(made, "score") else None


def canaries(config: RunConfig) -> CanaryPlan | None:
    """Which slots have a reward that is known beforehand."""
    every = config.checks.canary_every
    return CanaryPlan(config.seed, every) if every else None


def _own_reward(of: Task) -> Callable[..., Any]:
    if of.reward is None:
        raise TaskInvalid("this task has no reward of its own: name a grader.kind")
    return of.reward


def _fitting(config: RunConfig, of: Task) -> Task:
    longest = max(len(of.prompt(group).ids) for group in range(32))
    if longest > config.longest_prompt:
        raise TaskInvalid(
            f"prompts of {longest} tokens and responses of {config.rollout.max_new_tokens} do not "
            f"fit model.context {config.model.context}"
        )
    return of
