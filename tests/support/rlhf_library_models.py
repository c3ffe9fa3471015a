"""Tiny random models of Hugging Face's library, made from a configuration: nothing is downloaded."""

from pathlib import Path
from typing import Any

import torch
import transformers

from rlhf.model.huggingface import HuggingFaceModel

VOCABULARY = 40
CONTEXT = 96


def library_model(family: str = "Llama", seed: int = 0, **more: Any) -> HuggingFaceModel:
    """A model of a family by the library's name for it: 4 heads of queries over 2 of keys."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": 0,
        "eos_token_id": 3,
        "pad_token_id": 1,
        "sliding_window": None,
    }
    if family == "GPT2":
        sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4}
        sizes |= {"n_positions": CONTEXT, "bos_token_id": 0, "eos_token_id": 3}
    config = getattr(transformers, f"{family}Config")(**(sizes | more))
    head = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    causal = getattr(transformers, head)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in causal.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.12, generator=generator)
    return HuggingFaceModel(causal)


def words_tokenizer(folder: Path, *, template: str | None = None) -> None:
    """A tokenizer of VOCABULARY words w0, w1, ... in a folder; id 3 ends a text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {f"w{number}": number for number in range(VOCABULARY)}
    made = Tokenizer(WordLevel(words, unk_token="w2"))
    made.pre_tokenizer = WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="w3", pad_token="w1", unk_token="w2"
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
