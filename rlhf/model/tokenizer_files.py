"""Our vocabularies as the files of a Hugging Face tokenizer, so that an exported policy can be spoken to.

`tokenizer.json` is that of the `tokenizers` library, `tokenizer_config.json` names the two special
tokens, `generation_config.json` says which one ends a response. Ids are the same as in training.
"""

import json
from pathlib import Path
from typing import Any

from rlhf.model.huggingface import HuggingFaceVocabulary
from rlhf.tasks.vocabulary import Bytes, Characters, Vocabulary

STOP, PADDING = "<stop>", "<pad>"


def write(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes the files of a vocabulary beside a model.

    Raises:
        TypeError: a vocabulary of the user's own, which has no such files.
    """
    if isinstance(vocabulary, HuggingFaceVocabulary):
        vocabulary.tokenizer.save_pretrained(folder)
        return
    if isinstance(vocabulary, Characters):
        parts = _characters(vocabulary.letters)
    elif isinstance(vocabulary, Bytes):
        parts = _bytes()
    else:
        raise TypeError(f"{type(vocabulary).__name__} has no files of a tokenizer")
    stop = vocabulary.stop_tokens[0]
    special = [_special(stop, STOP), _special(vocabulary.padding, PADDING)]
    parts["model"]["vocab"] |= {STOP: stop, PADDING: vocabulary.padding}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "post_processor": None,
        **parts,
    }
    _write(folder / "tokenizer.json", tokenizer)
    names = {"eos_token": STOP, "pad_token": PADDING, "unk_token": PADDING}
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            **names,
        },
    )
    _write(
        folder / "generation_config.json",
        {"eos_token_id": stop, "pad_token_id": vocabulary.padding},
    )


def _characters(letters: str) -> dict[str, Any]:
    """One id a letter; what is no letter becomes padding, which no text has: so it is noticed."""
    return {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordLevel",
            "vocab": {letter: number for number, letter in enumerate(letters)},
            "unk_token": PADDING,
        },
    }


def _bytes() -> dict[str, Any]:
    """One id a byte, written as the letter that the library has for it, and nothing merged."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "pre_tokenizer": level | {"use_regex": False},
        "decoder": level | {"use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {letter: number for number, letter in enumerate(_byte_letters())},
            "merges": [],
        },
    }


def _byte_letters() -> list[str]:
    """The letter of each byte: itself where it is printable in Latin-1, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    place = {byte: 256 + number for number, byte in enumerate(others)}
    return [chr(place.get(byte, byte)) for byte in range(256)]


def _special(token: int, text: str) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": text, "special": True, **plain}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
