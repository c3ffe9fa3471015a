"""From the logits of a step to its tokens: whatever each request wants, all rows at once.

Log-probabilities are those of the whole distribution at the request's temperature. Top-k, top-p, a
minimum length and biases change what is drawn; which tokens were left is reported on demand.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf.engine_requests import FullParameters
from rlhf.kv.plan import FAILED
from rlhf.model.policy import log_softmax_at
from rlhf.sampling import allowed_tokens, draw, uniforms


class Wanted(NamedTuple):
    """Who draws: the request's parameters, and the token's position in the response."""

    parameters: FullParameters
    place: int


class Drawn(NamedTuple):
    """One entry per row. A row whose numbers are no numbers has the token FAILED."""

    tokens: list[int]
    logprobs: list[float]
    supports: dict[int, list[int]]
    """By row, where it was asked for and not all tokens were left."""
    top: dict[int, list[tuple[int, float]]]


def drawn(logits: Tensor, rows: Sequence[Wanted]) -> Drawn:
    """Draws a token for every row of [rows, vocabulary] logits."""
    if not rows:
        return Drawn([], [], {}, {})
    parameters = [row.parameters for row in rows]
    divisors = torch.tensor([one.divisor for one in parameters], device=logits.device)
    logprobs = log_softmax_at(logits, divisors[:, None])
    # A NaN anywhere in a row, or an infinity, makes its largest log-probability NaN.
    broken = ~torch.isfinite(logprobs.amax(dim=1))
    if bool(broken.any()):
        logprobs = logprobs.masked_fill(broken[:, None], 0.0)
    scores = _biased(logprobs, parameters)
    free = all(_unbounded(row) for row in rows)
    allowed = None if free else allowed_tokens(scores, parameters, [row.place for row in rows])
    chosen = _chosen(scores, allowed, rows)
    of_chosen = logprobs.gather(1, chosen[:, None]).squeeze(1)
    tokens = torch.where(broken, FAILED, chosen).tolist()
    supports = {}
    if allowed is not None:
        for row, one in enumerate(parameters):
            if one.keep_support and not one.greedy and not bool(allowed[row].all()):
                supports[row] = allowed[row].nonzero().flatten().tolist()
    return Drawn(tokens, of_chosen.tolist(), supports, _top(logprobs, parameters))


def _unbounded(row: Wanted) -> bool:
    one = row.parameters
    short = one.stop_tokens and row.place < one.min_new_tokens
    return not short and one.top_k <= 0 and one.top_p >= 1


def _biased(logprobs: Tensor, parameters: Sequence[FullParameters]) -> Tensor:
    if not any(one.logit_bias for one in parameters):
        return logprobs
    scores = logprobs.clone()
    for row, one in enumerate(parameters):
        if one.logit_bias:
            ids = torch.tensor([token for token, _ in one.logit_bias], device=scores.device)
            added = [bias / one.divisor for _, bias in one.logit_bias]
            scores[row, ids] += torch.tensor(added, device=scores.device)
    return scores


def _chosen(scores: Tensor, allowed: Tensor | None, rows: Sequence[Wanted]) -> Tensor:
    """[rows] ids. Greedy rows are spared the drawing."""
    left = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
    chosen = left.argmax(dim=1)
    drawing = [number for number, row in enumerate(rows) if not row.parameters.greedy]
    if not drawing:
        return chosen
    picked = torch.tensor(drawing, device=scores.device)
    numbers = uniforms(
        [rows[number].parameters.seed for number in drawing],
        [rows[number].place for number in drawing],
    )
    every = torch.ones((1, scores.shape[1]), dtype=torch.bool, device=scores.device)
    chosen[picked] = draw(
        scores[picked],
        every if allowed is None else allowed[picked],
        numbers,
        [rows[number].parameters.temperature for number in drawing],
    )
    return chosen


def _top(
    logprobs: Tensor, parameters: Sequence[FullParameters]
) -> dict[int, list[tuple[int, float]]]:
    most = max(one.top_logprobs for one in parameters)
    if not most:
        return {}
    best = logprobs.topk(min(most, logprobs.shape[1]), dim=1)
    pairs = {}
    for row, one in enumerate(parameters):
        if one.top_logprobs:
            ids = best.indices[row, : one.top_logprobs].tolist()
            values = best.values[row, : one.top_logprobs].tolist()
            pairs[row] = list(zip(ids, values, strict=True))
    return pairs
