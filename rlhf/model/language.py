"""What a language model is to training, rollout and export, whatever its make."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Output(NamedTuple):
    """`logits` [rows, tokens, vocabulary] of the next token, `values` [rows, tokens] of the state."""

    logits: Tensor
    values: Tensor


class LanguageModel(nn.Module):
    """A causal model with a value head. Rows are padded on the right."""

    @property
    def context(self) -> int:
        """Most tokens of a row."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(self, tokens: Tensor) -> Output:
        """[rows, tokens] ids to logits and values at every token."""
        raise NotImplementedError

    def hidden(self, tokens: Tensor) -> Tensor:
        """[rows, tokens, width]: what the last layer makes of each token."""
        raise NotImplementedError

    def export(self, folder: Path) -> None:
        """Writes `config.json` and `model.safetensors` in the Hugging Face layout, without the value
        head, which no other program knows.
        """
        raise NotImplementedError
