"""What a step computes: cache, forward pass and draws of a plan."""

from collections.abc import Sequence

import torch

from rlhf.engine_sampling import Drawn, Wanted, drawn
from rlhf.engine_settings import Settings
from rlhf.engine_stats import Stopwatch
from rlhf.kv.architecture import Architecture, architecture_of
from rlhf.kv.attention import choose, reads_tables
from rlhf.kv.batch import batch_of
from rlhf.kv.cache import Cache, block_bytes
from rlhf.kv.forward import PagedForward
from rlhf.kv.plan import Plan
from rlhf.model.language import LanguageModel


class Computation:
    """A model over a cache of its own.

    Raises:
        UnsupportedModel: the model is not built like those known to the paged forward pass.
    """

    def __init__(self, model: LanguageModel, settings: Settings, stopwatch: Stopwatch) -> None:
        self.architecture = made = architecture_of(model)
        self.blocks = _blocks(made, settings)
        self._cache = Cache(
            len(made.layers),
            self.blocks,
            settings.block_size,
            made.shared_heads,
            made.head_width,
            dtype=made.dtype,
            device=made.device,
            heads_first=not reads_tables(made.dtype, made.device),
        )
        self._forward = PagedForward(made, self._cache, choose(self._cache))
        self._stopwatch = stopwatch

    def run(self, plan: Plan, rows: Sequence[Wanted]) -> Drawn:
        """Writes the plan's keys and values, draws for `rows`, and makes the plan's copies."""
        with torch.inference_mode():
            with self._stopwatch.stage("prepare"):
                self._cache.clear(plan.fresh)
                batch = batch_of(plan, self._cache.block_size, self.architecture.device)
            with self._stopwatch.stage("forward"):
                logits = self._forward.logits(batch)
                self._cache.copy(plan.copies)
            with self._stopwatch.stage("draw"):
                return drawn(logits, rows)


def _blocks(made: Architecture, settings: Settings) -> int:
    """Blocks of the cache: asked for, or what memory, seats and context allow."""
    if settings.blocks is not None:
        return settings.blocks
    size = settings.block_size
    each = block_bytes(len(made.layers), size, made.shared_heads, made.head_width, made.dtype)
    usable = settings.limits.seats * -(-made.context // size)
    return max(1, min(settings.cache_bytes // each, usable))
