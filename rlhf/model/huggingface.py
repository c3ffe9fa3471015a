"""Hugging Face causal models by name or folder, with a value head of ours on top.

`transformers` is imported when a model is loaded, and only then: everything else works without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlhf.model.language import LanguageModel, Output


class ModelUnavailable(Exception):
    """The model can't be loaded; the message says what is missing."""


class HuggingFaceModel(LanguageModel):
    """A causal model as `transformers` has it, in evaluation mode: its dropout stays off."""

    def __init__(self, causal: nn.Module) -> None:
        super().__init__()
        self.causal = causal.eval()
        self._config: Any = causal.config
        self.value_head = nn.Linear(_width(self._config), 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.value_head.to(next(causal.parameters()).device)

    @property
    def context(self) -> int:
        for name in ("max_position_embeddings", "n_positions", "n_ctx"):
            if size := getattr(self._config, name, None):
                return int(size)
        raise ModelUnavailable("the model's configuration does not say how long a row may be")

    def train(self, mode: bool = True) -> "HuggingFaceModel":
        """Stays in evaluation mode: dropout between two passes would make every ratio differ."""
        del mode
        return super().train(False)

    def forward(self, tokens: Tensor) -> Output:
        given = self.causal(input_ids=tokens, output_hidden_states=True, use_cache=False)
        last = given.hidden_states[-1].to(self.value_head.weight.dtype)
        return Output(given.logits, self.value_head(last).squeeze(-1))

    def hidden(self, tokens: Tensor) -> Tensor:
        given = self.causal(input_ids=tokens, output_hidden_states=True, use_cache=False)
        last: Tensor = given.hidden_states[-1]
        return last

    def export(self, folder: Path) -> None:
        save: Any = self.causal.save_pretrained
        save(folder, safe_serialization=True)


class HuggingFaceVocabulary:
    """A tokenizer as `transformers` has it; `tokenizer` is the library's own, for its templates.

    Models that talk end a turn with another token than a text: `ends` are such tokens.
    """

    def __init__(self, tokenizer: Any, ends: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        if tokenizer.eos_token_id is None:
            raise ModelUnavailable(
                "the tokenizer has no end-of-text token: nothing ends a response"
            )
        self.size = len(tokenizer)
        end = int(tokenizer.eos_token_id)
        self.stop_tokens: tuple[int, ...] = (end, *(one for one in ends if one != end))
        padding = tokenizer.pad_token_id
        self.padding = int(tokenizer.eos_token_id if padding is None else padding)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it.

        Raises:
            ValueError: something in it has no id.
        """
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if unknown is not None and unknown in ids:
            raise ValueError(f"something in {text[:40]!r} is not in the tokenizer's vocabulary")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def load_model(name: str) -> HuggingFaceModel:
    """The model of a name or a folder.

    Raises:
        ModelUnavailable: transformers is not installed, or does not find it.
    """
    library = _transformers()
    try:
        causal = library.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"model {name!r}: {error}") from error
    return HuggingFaceModel(causal)


def load_vocabulary(name: str) -> HuggingFaceVocabulary:
    """The tokenizer of a name or a folder.

    Raises:
        ModelUnavailable: transformers is not installed, or does not find it.
    """
    library = _transformers()
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"tokenizer {name!r}: {error}") from error
    return HuggingFaceVocabulary(tokenizer, _ends(library, name))


def _ends(library: Any, name: str) -> list[int]:
    """The tokens that end a generation, where the model says so beside its tokenizer."""
    try:
        said = library.GenerationConfig.from_pretrained(name).eos_token_id
    except OSError:
        return []
    several = said if isinstance(said, list) else [said]
    return [int(one) for one in several if one is not None]


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ModelUnavailable(
            "model.kind=huggingface needs the package transformers: pip install transformers; "
            "or use model.kind=decoder"
        ) from error
    return transformers


def _width(config: Any) -> int:
    for name in ("hidden_size", "n_embd", "d_model"):
        if size := getattr(config, name, None):
            return int(size)
    raise ModelUnavailable("the model's configuration does not say how wide its layers are")
