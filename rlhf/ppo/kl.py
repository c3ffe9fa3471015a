"""How far the policy has moved from its reference: estimators, and controllers of the penalty's weight.

With x = log pi(token) - log pi_ref(token) for a token drawn from pi, each estimator's mean is the KL
divergence: k1 is x itself (unbiased, noisy, may be negative), k2 is x^2/2 (biased), k3 is
exp(-x) - 1 + x (unbiased, never negative).
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


def divergence(logprobs: Tensor, reference: Tensor, estimator: Estimator = "k1") -> Tensor:
    """One estimate per token, of the same shape."""
    log_ratio = logprobs - reference
    if estimator == "k1":
        return log_ratio
    if estimator == "k2":
        return 0.5 * log_ratio**2
    return torch.exp(-log_ratio) - 1 + log_ratio


class Controller(Protocol):
    """Decides the weight of the KL penalty from step to step."""

    beta: float

    def update(self, measured: float, episodes: int) -> None:
        """Takes notice of a batch: its mean KL per sequence, and how many sequences it had."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class FixedKl:
    """A weight that stays."""

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def update(self, measured: float, episodes: int) -> None:
        """Nothing changes."""

    def state_dict(self) -> dict[str, Any]:
        return {"beta": self.beta}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.beta = float(state["beta"])


class AdaptiveKl(FixedKl):
    """Raises the weight while the KL is above its target, and lowers it below.

    A step changes it by at most a fifth of episodes/horizon, however far off the KL is.
    """

    def __init__(self, beta: float, target: float, horizon: int) -> None:
        super().__init__(beta)
        self.target = target
        self.horizon = horizon

    def update(self, measured: float, episodes: int) -> None:
        error = min(max(measured / self.target - 1.0, -0.2), 0.2)
        self.beta *= 1.0 + error * episodes / self.horizon
