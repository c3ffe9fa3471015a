"""Drawing tokens: which are allowed, and a random number for each that depends on seed and place only.

The number is a hash of (seed of the request, position of the token in the response): no generator with
a state, so neither the neighbours in a batch nor a restart change what is drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_GREEDY_BELOW = 1e-6
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Parameters:
    """How to draw a response.

    `seed` is of this response alone, 63 bits (`identity.sampling_seed`). Temperature 0 takes the
    likeliest token. `top_k` 0 and `top_p` 1 leave all tokens; what they cut off makes the sampling
    differ from the log-probabilities reported, which are those of the whole distribution. Before
    `min_new_tokens` no stop token is drawn.
    """

    max_new_tokens: int
    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    stop_tokens: tuple[int, ...] = ()
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                "a response has max_new_tokens >= 1, temperature >= 0 and 0 < top_p <= 1, not "
                f"{self.max_new_tokens}, {self.temperature}, {self.top_p}"
            )

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature < _GREEDY_BELOW

    @property
    def divisor(self) -> float:
        """What logits are divided by."""
        return 1.0 if self.greedy else self.temperature


def uniforms(seeds: Sequence[int], places: Sequence[int]) -> Tensor:
    """[rows] float64 numbers of [0, 1), 53 bits each; one for each (seed, place)."""
    return torch.tensor(
        [_mixed(seed, place) / (1 << 53) for seed, place in zip(seeds, places, strict=True)],
        dtype=torch.float64,
    )


def _mixed(seed: int, place: int) -> int:
    """53 well-mixed bits (SplitMix64 at the seed's stream, place + 1 steps on)."""
    x = (_finalised(seed & _MASK_64) + (place + 1) * 0x9E3779B97F4A7C15) & _MASK_64
    return _finalised(x) >> 11


def _finalised(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return x ^ (x >> 31)


def allowed_tokens(
    logprobs: Tensor, parameters: Sequence[Parameters], places: Sequence[int]
) -> Tensor:
    """[rows, vocabulary] which tokens may be drawn; at least one in every row."""
    allowed = torch.ones_like(logprobs, dtype=torch.bool)
    for row, (one, place) in enumerate(zip(parameters, places, strict=True)):
        if place < one.min_new_tokens and one.stop_tokens:
            allowed[row, list(one.stop_tokens)] = False
        if one.top_k > 0 or one.top_p < 1:
            allowed[row] &= _nucleus(logprobs[row].masked_fill(~allowed[row], -torch.inf), one)
    return allowed


def _nucleus(logprobs: Tensor, parameters: Parameters) -> Tensor:
    """The likeliest tokens of one row, by number (top-k) and by mass (top-p)."""
    ordered, order = torch.softmax(logprobs, dim=-1).sort(descending=True, stable=True)
    # A token stays while the mass before it is short of top_p. So the first always does, but for a
    # top_p so small that it is 0 in the precision of the mass.
    stays = ordered.cumsum(dim=-1) - ordered < parameters.top_p
    stays[0] = True
    if parameters.top_k > 0:
        stays[parameters.top_k :] = False
    return torch.zeros_like(stays).scatter(0, order, stays)


def draw(
    logprobs: Tensor, allowed: Tensor, numbers: Tensor, temperatures: Sequence[float]
) -> Tensor:
    """[rows] token ids: where the cumulated probability passes the row's number.

    Args:
        logprobs: [rows, vocabulary] at each row's temperature.
        allowed: [rows, vocabulary].
        numbers: [rows] of [0, 1).
        temperatures: [rows]; 0 takes the likeliest allowed token instead.
    """
    masked = logprobs.double().masked_fill(~allowed, -torch.inf)
    mass = torch.softmax(masked, dim=-1).cumsum(dim=-1)
    # Scaled by the sum as it came out: the last allowed token always reaches it.
    threshold = numbers.to(mass.device)[:, None] * mass[:, -1:]
    drawn = torch.searchsorted(mass, threshold, right=True).squeeze(1)
    greedy = torch.tensor([one < _GREEDY_BELOW for one in temperatures], device=mass.device)
    return torch.where(greedy, masked.argmax(dim=-1), drawn)
