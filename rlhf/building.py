"""From a configuration to the things it names: vocabulary, task, grader. No torch, unless a model grades.

What is heavy is named by reference (`module:name`) and loaded when it is asked for: the process with
the event loop stays small.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rlhf.canaries import CanaryPlan
from rlhf.config.sections import RunConfig, Scorer
from rlhf.graders.composite import GradersTogether, Part, combine
from rlhf.graders.functions import BadFunction, FunctionGrader, load
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
        if config.rollout.max_new_tokens < wanted.digits + 1:
            raise TaskInvalid(
                f"rollout.max_new_tokens {config.rollout.max_new_tokens} leaves no room for "
                f"{wanted.digits} digits and the stop token: no response could be right"
            )
        return _fitting(config, ReverseDigits(seed, wanted.digits, wanted.corruption))
    if wanted.name == "sentiment":
        made = Sentiment(seed, response_characters=config.rollout.max_new_tokens)
        return _fitting(config, made)
    assert wanted.prompts is not None
    return JsonLines(wanted.prompts, None, text_vocabulary(config), seed, config.longest_prompt)


def notes(config: RunConfig, of: Task) -> list[str]:
    """What is worth knowing of a task before the first step, in sentences."""
    if not isinstance(of, JsonLines):
        return []
    groups = config.rollout.batch // config.rollout.group
    epochs = config.steps * groups / of.size
    told = [f"{of.size} prompts, each met {epochs:.3g} times in {config.steps} steps"]
    if of.size < groups:
        told.append(
            f"a batch holds {groups} prompts and there are only {of.size}: some come twice in it, each "
            "time with a response of its own"
        )
    return told


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
    if wanted.kind != "composite":
        return _grader(wanted, config, of)
    return GradersTogether(
        {
            name: (_grader(part, config, of), Part(part.weight, part.floor))
            for name, part in wanted.parts.items()
        }
    )


def _grader(wanted: Scorer, config: RunConfig, of: Task) -> Grader:
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
        return _custom(wanted.function, function)
    if wanted.kind == "processes":
        return ProcessGrader(
            wanted.function,
            workers=config.grader.workers,
            timeout_seconds=seconds,
            pure=wanted.pure,
        )
    return FunctionGrader(function, pure=wanted.pure)


def _custom(reference: str, make: Callable[..., Any]) -> Grader:
    """The user's own grader, from what makes it.

    Raises:
        BadFunction: it can't be called without arguments, or what it makes is no grader.
    """
    try:
        made = make()
    # The user's code: whatever it raises is told as its own.
    except Exception as error:
        raise BadFunction(
            f"{reference} made no grader: {type(error).__name__}: {error}; it is called without "
            "arguments"
        ) from error
    missing = [name for name in ("grade", "close") if not callable(getattr(made, name, None))]
    if missing:
        raise BadFunction(
            f"{reference} made {type(made).__name__}, which is no grader: it has no "
            f"{' and no '.join(missing)}"
        )
    own: Grader = made
    return own


def audit(config: RunConfig, of: Task) -> Audit | None:
    """Who scores again in the trainer, or none: where scores are not pure, or not ours to compute."""
    wanted = config.grader
    if config.checks.audit_function is not None:
        return FunctionGrader(load(config.checks.audit_function), pure=True)
    if wanted.kind != "composite":
        return _audit(wanted, config, of)
    audits = {name: _audit(part, config, of) for name, part in wanted.parts.items()}
    pure = {name: one for name, one in audits.items() if one is not None}
    if len(pure) < len(audits):
        return None
    return AuditOfParts(
        {name: (pure[name], Part(one.weight, one.floor)) for name, one in wanted.parts.items()}
    )


def _audit(wanted: Scorer, config: RunConfig, of: Task) -> Audit | None:
    if wanted.kind == "http" or (wanted.function is not None and not wanted.pure):
        return None
    if wanted.kind == "processes":
        assert wanted.function is not None
        return FunctionGrader(load(wanted.function), pure=True)
    made: Any = _grader(wanted, config, of)
    return made if hasattr(made, "score") else None


class AuditOfParts:
    """Scores a composite reward again, part by part."""

    def __init__(self, audits: Mapping[str, tuple[Audit, Part]]) -> None:
        self._audits = audits

    def score(self, sample: Sample) -> Score:
        """The reward of a sample, and its parts."""
        values = {name: one.score(sample).reward for name, (one, _) in self._audits.items()}
        return combine(values, {name: part for name, (_, part) in self._audits.items()})


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
