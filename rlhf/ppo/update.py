"""One update: several passes over a batch, in mini-batches, in micro-batches that change no result.

What is trained, a language model or a cart with a pole, is behind two protocols. The experience hands
out rows together with all that training needs of them; the policy says what it thinks of them now.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rlhf.config.algorithm import Kl, Ppo
from rlhf.ppo.layout import Masks
from rlhf.ppo.losses import kl_loss, policy_loss, value_loss
from rlhf.ppo.statistics import masked_sum


class RatioNotOne(Exception):
    """The first mini-batch's probabilities differ from those measured just before, by the same weights.

    So the two forward passes are not the same function: dropout, another temperature, a shifted index,
    or arithmetic that depends on the batch's size beyond the tolerance.
    """


class Rows(NamedTuple):
    """Some rows of a batch. Tensors are [rows, width]; `inputs` is what the policy reads.

    `weights` are importance weights, `old_values` and `returns` are there with a critic, `reference`
    with a KL loss.
    """

    inputs: Any
    masks: Masks
    proximal: Tensor
    advantages: Tensor
    weights: Tensor
    old_values: Tensor | None = None
    returns: Tensor | None = None
    reference: Tensor | None = None


class Evaluation(NamedTuple):
    """What the policy thinks of given actions: [rows, width] each. No values without a critic."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None


class Experience(Protocol):
    """A batch to learn from."""

    size: int
    """Rows."""

    def counts(self, rows: Tensor) -> tuple[int, int]:
        """How many tokens of these rows count for the policy, and for the critic."""

    def take(self, rows: Tensor) -> Rows:
        """These rows, with everything that belongs to them."""


Evaluate = Callable[[Any], Evaluation]
"""The policy: reads `Rows.inputs`; gradients flow through what it returns."""


@dataclass
class Totals:
    """Sums over all mini-batches of an update, and what to divide them by."""

    sums: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    value_tokens: int = 0
    steps: int = 0
    largest_first_deviation: float = 0.0
    passes: int = 0

    def add(self, **values: Tensor) -> None:
        """Adds sums over tokens."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def metrics(self) -> dict[str, float]:
        """Means under the names that people know."""
        tokens, value_tokens = max(self.tokens, 1), max(self.value_tokens, 1)
        by_token = {
            "policy/clipfrac_avg": "clipped",
            "policy/approxkl_avg": "approximate_kl",
            "policy/entropy_avg": "entropy",
            "val/ratio": "ratio",
            "loss/policy_avg": "policy",
        }
        found = {name: self.sums.get(key, 0.0) / tokens for name, key in by_token.items()}
        found["loss/value_avg"] = self.sums.get("value", 0.0) / value_tokens
        found["policy/grad_norm"] = self.sums.get("grad_norm", 0.0) / max(self.steps, 1)
        found["val/first_ratio_deviation"] = self.largest_first_deviation
        found["policy/passes"] = float(self.passes)
        return found


def update(
    experience: Experience,
    evaluate: Evaluate,
    optimizer: torch.optim.Optimizer,
    ppo: Ppo,
    kl: Kl,
    beta: float,
    seed: int,
) -> dict[str, float]:
    """Trains on a batch and returns metrics.

    Args:
        experience: the batch.
        evaluate: the policy; in evaluation mode, so that dropout changes nothing.
        optimizer: over the parameters behind `evaluate`.
        ppo: what to minimise and how often.
        kl: whether the KL is a loss, and the limit beyond which no further pass is made.
        beta: weight of the KL loss.
        seed: of the order of rows; the same seed gives the same order.

    Raises:
        RatioNotOne: see there.
    """
    totals = Totals()
    generator = torch.Generator().manual_seed(seed)
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for number in range(ppo.epochs):
        drift = 0.0
        for rows in split(torch.randperm(experience.size, generator=generator), ppo.minibatches):
            first = totals.steps == 0
            optimizer.zero_grad(set_to_none=True)
            drift += _accumulate(experience, evaluate, rows, ppo, kl, beta, totals, first=first)
            norm = torch.nn.utils.clip_grad_norm_(parameters, ppo.max_grad_norm)
            optimizer.step()
            totals.add(grad_norm=norm)
            totals.steps += 1
        totals.passes = number + 1
        if kl.limit is not None and drift / experience.size > kl.limit:
            break
    return totals.metrics()


def split(rows: Tensor, parts: int) -> Iterator[Tensor]:
    """Cuts rows into so many parts of (nearly) one size; fewer where there are fewer rows."""
    yield from torch.tensor_split(rows, min(parts, len(rows)))


def _accumulate(
    experience: Experience,
    evaluate: Evaluate,
    rows: Tensor,
    ppo: Ppo,
    kl: Kl,
    beta: float,
    totals: Totals,
    *,
    first: bool,
) -> float:
    """Gradients of one mini-batch; returns its summed KL to the reference."""
    tokens, value_tokens = experience.counts(rows)
    totals.tokens += tokens
    totals.value_tokens += value_tokens
    drift = 0.0
    for part in torch.split(rows, ppo.micro_batch or len(rows)):
        batch = experience.take(part)
        now = evaluate(batch.inputs)
        if first:
            _check_ratio(now.logprobs, batch, ppo.ratio_tolerance, totals)
        loss = _loss(batch, now, ppo, kl, beta, (tokens, value_tokens), totals)
        loss.backward()
        if batch.reference is not None:
            moved = now.logprobs.detach() - batch.reference
            drift += float(masked_sum(moved, batch.masks.value))
    return drift


def _loss(
    batch: Rows,
    now: Evaluation,
    ppo: Ppo,
    kl: Kl,
    beta: float,
    counts: tuple[int, int],
    totals: Totals,
) -> Tensor:
    policy = policy_loss(
        now.logprobs,
        batch.proximal,
        batch.advantages,
        batch.masks.policy,
        clip_low=ppo.clip_low,
        clip_high=ppo.clip_high,
        dual_clip=ppo.dual_clip,
        weights=batch.weights,
    )
    entropy = masked_sum(now.entropy, batch.masks.policy)
    by_token = policy.tokens.sum() - ppo.entropy_coefficient * entropy
    if kl.placement == "loss" and batch.reference is not None:
        estimates = kl_loss(now.logprobs, batch.reference, batch.masks.policy, kl.estimator)
        by_token = by_token + beta * estimates.sum()
    # Divided by the count of the whole mini-batch, not of this part of it.
    loss = by_token / max(counts[0], 1)
    if now.values is not None and batch.old_values is not None and batch.returns is not None:
        errors = value_loss(
            now.values, batch.old_values, batch.returns, batch.masks.value, ppo.value_clip
        ).sum()
        loss = loss + ppo.value_coefficient * errors / max(counts[1], 1)
        totals.add(value=errors.detach())
    totals.add(
        policy=policy.tokens.detach().sum(),
        entropy=entropy.detach(),
        clipped=policy.clipped,
        approximate_kl=policy.approximate_kl,
        ratio=policy.ratio,
    )
    return loss


def _check_ratio(logprobs: Tensor, batch: Rows, tolerance: float, totals: Totals) -> None:
    """Before any step, the policy is the proximal one: every ratio is 1."""
    with torch.no_grad():
        difference = (logprobs - batch.proximal).masked_fill(~batch.masks.policy, 0.0)
        deviation = float(difference.exp().sub(1).abs().max()) if difference.numel() else 0.0
    totals.largest_first_deviation = max(totals.largest_first_deviation, deviation)
    if not deviation <= tolerance:
        row, column = divmod(int(difference.abs().argmax()), difference.shape[1])
        raise RatioNotOne(
            f"the first mini-batch's ratio is off 1 by {deviation:.3g} (row {row}, token {column}; "
            f"tolerance {tolerance:.3g}) although no step was made: the forward pass before the "
            "update and the one inside of it differ. Look for dropout or training mode, another "
            "temperature, or a shifted index"
        )
