"""How the policy is trained: PPO and its alternatives, the KL penalty, corrections, the optimizer."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]

Estimator = Literal["gae", "grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline"]
GROUPED: tuple[Estimator, ...] = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")
"""Estimators that compare the responses to one prompt, and so need more than one."""


class Section(BaseModel):
    """Base of every part of a configuration: unknown keys are errors, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Ppo(Section):
    """The update. `estimator` chooses the algorithm, the rest holds for all of them."""

    estimator: Estimator = "gae"
    gamma: Fraction = 1.0
    lam: Fraction = 0.95
    epochs: Count = 4
    """Passes over a batch."""
    minibatches: Count = 1
    """Optimizer steps per pass."""
    micro_batch: Count | None = None
    """Rows in one forward pass; none for a whole mini-batch. Changes memory, not results."""
    clip_low: Positive = 0.2
    clip_high: Positive = 0.2
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    value_clip: Positive | None = 0.2
    value_coefficient: NotNegative = 0.1
    entropy_coefficient: NotNegative = 0.0
    whiten_advantages: bool = True
    """Over the batch's tokens; only with estimator gae, the others have their own normalisation."""
    whiten_rewards: bool = False
    sample_deviation: bool = False
    """grpo divides by the deviation of the sample (n - 1) instead of the population."""
    missing_stop_penalty: NotNegative = 1.0
    """Taken off the score of a response that does not end with a stop token."""
    drop_truncated: bool = False
    """Responses without a stop token train the critic only."""
    max_grad_norm: Positive = 1.0
    ratio_tolerance: Positive = 1e-4
    """How far the first mini-batch's ratio may be from 1 before the run stops."""

    @property
    def critic(self) -> bool:
        """Whether values are learned."""
        return self.estimator == "gae"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.clip_low >= 1:
            raise ValueError("clip_low must be below 1: a ratio is never negative")
        return self


class Kl(Section):
    """The penalty for leaving the reference model."""

    beta: NotNegative = 0.05
    placement: Literal["reward", "loss"] = "reward"
    estimator: Literal["k1", "k2", "k3"] = "k1"
    target: Positive | None = None
    """Mean KL per response to steer to, by changing beta; none keeps beta as it is."""
    horizon: Count = 10_000
    """Episodes over which beta adapts."""
    limit: Positive | None = None
    """Mean KL per response beyond which a step makes no further pass over its batch."""


class Correction(Section):
    """Importance weights for tokens that an older policy, or another arithmetic, has drawn."""

    mode: Literal["none", "truncate", "mask"] = "truncate"
    cap: Annotated[float, Field(ge=1)] = 2.0
    low: Fraction = 0.5
    """Smallest weight that mode mask keeps."""


class Optimizer(Section):
    """Adam, with eps 1e-5 as PPO is used to."""

    lr: Positive = 3e-4
    schedule: Literal["constant", "linear"] = "constant"
    """linear falls to 0 over the run's steps."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Positive = 1e-5
    weight_decay: NotNegative = 0.0
