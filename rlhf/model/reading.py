"""A batch being read and written on, token by token: with a cache where the model has one."""

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from rlhf.model.decoder import Cache, Decoder
from rlhf.model.language import LanguageModel


class Reading(Protocol):
    """Rows that were read so far; `logits` [rows, vocabulary] are of each one's next token."""

    logits: Tensor

    def add(self, tokens: Sequence[int]) -> None:
        """One more token on every row."""

    def only(self, rows: Sequence[int]) -> Self:
        """Goes on with these rows, in this order."""
        ...


def reading_of(model: LanguageModel, rows: Sequence[Sequence[int]], longest: int) -> Reading:
    """Reads rows that will not become longer than `longest` tokens."""
    if isinstance(model, Decoder):
        return CachedReading(model, rows, longest)
    return PlainReading(model, rows)


class CachedReading:
    """By our own decoder: each token is computed once."""

    def __init__(self, model: Decoder, rows: Sequence[Sequence[int]], longest: int) -> None:
        self._model = model
        self._lengths = torch.tensor([len(row) for row in rows], device=model.device)
        self._cache = Cache(model.shape, len(rows), longest, model.embed_tokens.weight)
        output = model.prefill(_padded(rows, model.device), self._lengths, self._cache)
        self.logits = output.logits[:, 0]

    def add(self, tokens: Sequence[int]) -> None:
        """One more token on every row."""
        last = torch.tensor(tokens, device=self._model.device)
        self.logits = self._model.step(last, self._lengths, self._cache).logits[:, 0]
        self._lengths = self._lengths + 1

    def only(self, rows: Sequence[int]) -> Self:
        """Goes on with these rows, in this order."""
        chosen = torch.tensor(rows, device=self._model.device)
        self._cache.keep(chosen)
        self._lengths, self.logits = self._lengths[chosen], self.logits[chosen]
        return self


class PlainReading:
    """By any model: everything is computed again for each token. Slow, and the same for all makes."""

    def __init__(self, model: LanguageModel, rows: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._rows = [list(row) for row in rows]
        self.logits = self._computed()

    def add(self, tokens: Sequence[int]) -> None:
        """One more token on every row."""
        for row, token in zip(self._rows, tokens, strict=True):
            row.append(token)
        self.logits = self._computed()

    def only(self, rows: Sequence[int]) -> Self:
        """Goes on with these rows, in this order."""
        self._rows = [self._rows[row] for row in rows]
        self.logits = self.logits[torch.tensor(rows, device=self.logits.device)]
        return self

    def _computed(self) -> Tensor:
        logits = self._model(_padded(self._rows, self._model.device)).logits
        last = [len(row) - 1 for row in self._rows]
        found: Tensor = logits[torch.arange(len(last)), torch.tensor(last)]
        return found


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
