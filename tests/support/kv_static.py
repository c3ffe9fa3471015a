"""Static batching on the same model: what the paged engine is compared with.

A batch starts together and ends with its slowest member; a finished row is computed on until then.
The cache is contiguous and attention reads what is filled of it, no more.
"""

from typing import NamedTuple

import torch
from support.kv_workloads import Job
from torch import Tensor
from torch.nn import functional

from rlhf.model.decoder import Cache, Decoder
from rlhf.model.policy import log_softmax_at


class StaticRun(NamedTuple):
    """What a run came to: the tokens of each job, iterations, and rows computed."""

    tokens: list[list[int]]
    iterations: int
    row_steps: int


def static_run(model: Decoder, work: list[Job], batch: int) -> StaticRun:
    """Runs jobs in the order given, `batch` at a time, greedily, with log-probabilities."""
    tokens: list[list[int]] = []
    iterations = row_steps = 0
    for first in range(0, len(work), batch):
        part = work[first : first + batch]
        longest = max(job.new for job in part)
        tokens += _batch(model, part, longest)
        iterations += longest
        row_steps += longest * len(part)
    return StaticRun(tokens, iterations, row_steps)


@torch.inference_mode()
def _batch(model: Decoder, part: list[Job], longest: int) -> list[list[int]]:
    lengths = torch.tensor([len(job.prompt) for job in part])
    widest = int(lengths.max())
    rows = torch.tensor([job.prompt + [0] * (widest - len(job.prompt)) for job in part])
    cache = Cache(model.shape, len(part), widest + longest, model.embed_tokens.weight)
    logits = model.prefill(rows, lengths, cache).logits[:, 0]
    chosen: list[Tensor] = []
    for step in range(longest):
        logprobs = log_softmax_at(logits, 1.0)
        token = logprobs.argmax(dim=1)
        logprobs.gather(1, token[:, None])
        chosen.append(token)
        if step + 1 < longest:
            logits = _step(model, token, lengths + step, cache, widest + step + 1)
    columns = torch.stack(chosen, dim=1).tolist()
    return [row[: job.new] for row, job in zip(columns, part, strict=True)]


def _step(model: Decoder, tokens: Tensor, positions: Tensor, cache: Cache, filled: int) -> Tensor:
    """`Decoder.step`, reading only the filled part of the cache."""
    turn = (model.cosine[positions, None, None], model.sine[positions, None, None])
    x = model.embed_tokens(tokens[:, None])
    visible = torch.arange(filled) <= positions[:, None]
    rows = torch.arange(len(tokens))
    for layer, keys, values in zip(model.layers, cache.keys, cache.values, strict=True):
        query, key, value = layer.self_attn.project(layer.input_layernorm(x), turn)
        keys[rows, :, positions] = key[:, :, 0]
        values[rows, :, positions] = value[:, :, 0]
        attended = functional.scaled_dot_product_attention(
            query, keys[:, :, :filled], values[:, :, :filled], attn_mask=visible[:, None, None, :]
        )
        x = x + layer.self_attn.merge(attended)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return functional.linear(model.norm(x), model.embed_tokens.weight)[:, 0]
