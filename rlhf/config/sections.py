"""Everything that may be said about a run, by topic. Each field's unit and reason is in its docstring."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlhf.config.algorithm import (
    GROUPED,
    Correction,
    Count,
    Fraction,
    Kl,
    Optimizer,
    Positive,
    Ppo,
    Section,
)

Then = Literal["Redraw", "Fail"]
PartName = Annotated[str, Field(pattern=r"^[A-Za-z][-_A-Za-z0-9]{0,62}$")]
Absent = Literal["TimedOut", "GraderError", "Refused", "InvalidAnswer", "NoResponse"]


class Task(Section):
    """What is trained on. `prompts` is for jsonl, `digits` and `corruption` for reverse-digits."""

    name: Literal["reverse-digits", "sentiment", "jsonl"] = "reverse-digits"
    digits: Annotated[int, Field(ge=1, le=32)] = 5
    corruption: Fraction = 0.55
    """Share of wrong digits in the demonstrations."""
    prompts: Path | None = None
    """File of JSON lines with `prompt`, and whatever the reward function wants to know."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.name == "jsonl") != (self.prompts is not None):
            raise ValueError("task.prompts belongs to task.name=jsonl, which needs it")
        return self


class Scorer(Section):
    """Something that gives rewards. `task` is the task's own function; only jsonl has none."""

    kind: Literal[
        "task",
        "function",
        "processes",
        "http",
        "helpful-harmless",
        "reward-model",
        "custom",
        "composite",
    ] = "task"
    function: str | None = None
    """module:function, for kinds function and processes; for custom, what makes a whole grader."""
    pure: bool = False
    """The function gives the same texts the same score, so that audits may recompute it."""
    url: str | None = None
    """For kind http; an https URL, or one of this machine."""
    key_file: Path | None = None
    """Shared secret that signs requests and replies of kind http."""
    model: Path | None = None
    """Folder of a trained reward model, for kind reward-model."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for kinds, name in (
            (("function", "processes", "custom"), "function"),
            (("http",), "url"),
            (("http",), "key_file"),
            (("reward-model",), "model"),
        ):
            if (self.kind in kinds) != (getattr(self, name) is not None):
                raise ValueError(f"grader.{name} belongs to grader.kind={' or '.join(kinds)}")
        return self


class ScorePart(Scorer):
    """One part of a composite reward, which is the parts' weighted mean."""

    weight: Positive = 1.0
    floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Where this part lies below it, the reward is at most this part's score."""

    @model_validator(mode="after")
    def _single(self) -> Self:
        if self.kind == "composite":
            raise ValueError("a part of a composite reward is not one itself")
        return self


class Grader(Scorer):
    """Who gives the rewards, and how many are asked at once."""

    parts: dict[PartName, ScorePart] = Field(default_factory=dict)
    """For kind composite: named scorers, each with its weight and floor, all of them reported."""
    workers: Count = 8
    """Samples graded at once."""

    @model_validator(mode="after")
    def _parted(self) -> Self:
        if (self.kind == "composite") != bool(self.parts):
            raise ValueError("grader.parts belongs to grader.kind=composite, which needs it")
        return self


class Model(Section):
    """The policy: a small decoder of our own, or a Hugging Face causal model by name or folder."""

    kind: Literal["decoder", "huggingface"] = "decoder"
    name: str | None = None
    width: Count = 64
    layers: Count = 2
    heads: Count = 4
    context: Count = 128
    """Most tokens of a row, prompt and response together."""
    start: Path | None = None
    """Weights to begin with, a .safetensors file of the same model; none for random ones."""
    device: str = "cpu"
    threads: Count = 1
    """CPU threads of the trainer and of rollout, each. More than one may change the last bits."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind == "huggingface") != (self.name is not None):
            raise ValueError("model.name belongs to model.kind=huggingface, which needs it")
        if self.kind == "decoder" and (self.width % self.heads or self.width // self.heads % 2):
            raise ValueError(
                f"model.width must be a multiple of 2 x model.heads = {2 * self.heads}"
            )
        return self


class WarmUp(Section):
    """Imitation of the task's demonstrations, before the first rollout. 0 steps for none."""

    steps: Annotated[int, Field(ge=0)] = 400
    batch: Count = 64
    lr: Positive = 2e-3


class Rollout(Section):
    """How responses are drawn."""

    batch: Count = 256
    """Responses of one update."""
    group: Count = 1
    """Responses to one prompt."""
    max_new_tokens: Count = 8
    temperature: Positive = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seats: Count = 256
    """Most responses that are generated at once; the others wait for a place."""
    cache_mib: Count = 256
    """Memory for keys and values. It is never more than all seats can use."""
    deterministic: bool = True
    """The same seed gives the same bits, however often the run is interrupted: a batch that was cut
    short is generated anew, whole. If false, its responses go on from their tokens; what differs
    then are the last digits of log-probabilities.
    """
    max_version_lag: Annotated[int, Field(ge=0)] = 0
    """Updates over which a response may be carried: it goes on with the newest weights, and each of
    its tokens says which version drew it. Only with deterministic=false.
    """

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.max_version_lag and self.deterministic:
            raise ValueError(
                "rollout.max_version_lag lets timing decide which weights draw a token: it needs "
                "rollout.deterministic=false"
            )
        if self.batch % self.group:
            raise ValueError(
                f"rollout.batch {self.batch} is no multiple of rollout.group {self.group}: a group "
                "would be cut by the border of a batch"
            )
        return self


class Absence(Section):
    """What is done about rewards that are missing for one reason; none follows the queue's own."""

    retries: Annotated[int, Field(ge=0)] | None = None
    then: Then | None = None


class Queue(Section):
    """Order, staleness and patience."""

    lag: Annotated[int, Field(ge=0)] = 1
    """Policy versions by which a batch trails the trainer; 0 trains and samples in turn."""
    grading_seconds: Positive = 60.0
    rollout_seconds: Positive = 600.0
    stall_seconds: Positive = 120.0
    take_seconds: Positive = 3600.0
    """Longest wait of the trainer for a batch before the run fails, naming what is missing."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a missing reward is asked for again."""
    then: Then = "Redraw"
    """What follows the retries."""
    missing: dict[Absent, Absence] = Field(default_factory=dict)
    """Retries and what follows for some reasons only. A refusal is not asked again unless this says so."""
    max_draws: Count = 3
    hedge_percentile: Annotated[float, Field(gt=0, lt=1)] = 0.95
    hedge_budget: Fraction = 0.1
    """Most hedges, as a share of all requests; 0 for none."""

    @model_validator(mode="after")
    def _patient(self) -> Self:
        for name in ("grading_seconds", "rollout_seconds"):
            if self.take_seconds <= getattr(self, name):
                raise ValueError(
                    f"queue.take_seconds {self.take_seconds:g} is not more than queue.{name} "
                    f"{getattr(self, name):g}: the trainer would give up before anybody is late"
                )
        return self


class Checks(Section):
    """What is verified while training goes on, beyond the binding check, which always is."""

    audits: Annotated[int, Field(ge=0)] = 4
    """Rewards of a batch that are computed again, when the grader is pure."""
    audit_function: str | None = None
    """module:function that audits call in place of the grader: a pure one beside a grader that is not."""
    canary_every: Annotated[int, Field(ge=0)] = 200
    """One slot in so many has a reward that is known beforehand, and trains nothing; 0 for none."""
    guard_share: Fraction = 0.01
    """Share of a batch's tokens whose log-probabilities are computed again where the very weights
    that are trained have drawn them (the first batch; with queue.lag=0, each); 0 for none.
    """
    guard_tolerance: Positive = 1e-3
    """Largest difference of a log-probability that rounding explains; beyond it the run stops."""


class Checkpoints(Section):
    """When the run saves. With neither, the interval follows from what a save costs."""

    every_steps: Count | None = None
    every_seconds: Positive | None = None
    keep: Annotated[int, Field(ge=2)] = 2

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.every_steps is not None and self.every_seconds is not None:
            raise ValueError("give checkpoints.every_steps or checkpoints.every_seconds, not both")
        return self


class Reports(Section):
    """Where metrics go besides metrics.jsonl, if the package is installed."""

    tensorboard: bool = False
    wandb: bool = False
    trackio: bool = False
    samples: bool = True
    """Write samples.jsonl; the doctor's scan for shifted rewards reads it."""


class RunConfig(Section):
    """A whole run."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "rlhf"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    steps: Count = 120
    """Updates."""
    task: Task = Task()
    grader: Grader = Grader()
    model: Model = Model()
    warm_up: WarmUp = WarmUp()
    rollout: Rollout = Rollout()
    queue: Queue = Queue()
    ppo: Ppo = Ppo()
    kl: Kl = Kl()
    correction: Correction = Correction()
    optimizer: Optimizer = Optimizer()
    checks: Checks = Checks()
    checkpoints: Checkpoints = Checkpoints()
    reports: Reports = Reports()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ppo.estimator in GROUPED and self.rollout.group < 2:
            raise ValueError(
                f"ppo.estimator={self.ppo.estimator} compares the responses to one prompt: "
                "rollout.group must be at least 2"
            )
        if self.grader.kind == "task" and self.task.name == "jsonl":
            raise ValueError("task.name=jsonl has no reward of its own: name a grader.kind")
        if self.model.kind == "decoder" and self.rollout.max_new_tokens >= self.model.context:
            raise ValueError(
                f"rollout.max_new_tokens {self.rollout.max_new_tokens} leaves no room for a prompt "
                f"in model.context {self.model.context}"
            )
        if self.ppo.minibatches > self.rollout.batch:
            raise ValueError(
                f"ppo.minibatches {self.ppo.minibatches} is more than rollout.batch "
                f"{self.rollout.batch}"
            )
        return self

    @property
    def longest_prompt(self) -> int:
        """Tokens of the context that the response leaves."""
        return self.model.context - self.rollout.max_new_tokens
