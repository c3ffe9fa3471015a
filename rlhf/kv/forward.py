"""The forward pass over blocks: all tokens of a step in one row, keys and values into the cache.

Projections and networks see one long row of tokens, whoever they belong to; only attention knows
sequences. Logits are computed for the tokens that somebody draws from, and for no others.
"""

from typing import Any

import torch
from torch import Tensor

from rlhf.kv.architecture import Architecture
from rlhf.kv.attention import Attention
from rlhf.kv.batch import Batch
from rlhf.kv.cache import Cache
from rlhf.model.decoder import rotated


class PagedForward:
    """A model over a cache. Runs under inference mode; its numbers are those of the plain pass."""

    def __init__(self, model: Architecture, cache: Cache, attention: Attention) -> None:
        self._model = model
        self._cache = cache
        self._attention = attention

    def logits(self, batch: Batch) -> Tensor:
        """[draws, vocabulary] logits of the rows in `batch.drawing`; writes the step's keys."""
        model = self._model
        self._attention.begin(batch)
        cosine, sine = model.turn(batch.positions)
        turn = (cosine[:, None], sine[:, None])
        hidden = model.embed(batch.tokens)
        for number, layer in enumerate(model.layers):
            attended = self._attend(number, layer, layer.input_layernorm(hidden), turn, batch)
            hidden = hidden + layer.self_attn.o_proj(attended)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        if not len(batch.drawing):
            return torch.empty((0, model.vocabulary), dtype=model.dtype, device=model.device)
        return model.head(model.norm(hidden[batch.drawing]))

    def _attend(
        self,
        number: int,
        layer: Any,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        batch: Batch,
    ) -> Tensor:
        model = self._model
        part: Any = layer.self_attn
        query = part.q_proj(x).view(len(x), model.heads, model.head_width)
        key = part.k_proj(x).view(len(x), model.shared_heads, model.head_width)
        value = part.v_proj(x).view(len(x), model.shared_heads, model.head_width)
        if hasattr(part, "q_norm"):
            query, key = part.q_norm(query), part.k_norm(key)
        self._cache.write(number, batch.places, rotated(key, turn), value)
        gathered = self._attention(number, rotated(query, turn), model.scale)
        return gathered.reshape(len(x), model.heads * model.head_width)
