"""Text as token ids and back: characters for small tasks, bytes for any text."""

from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """A tokenizer. `stop_tokens` end a response; `padding` is never part of one."""

    size: int
    stop_tokens: tuple[int, ...]
    padding: int

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without stop token.

        Raises:
            ValueError: something in it has no id.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; stop tokens and padding are left out."""


class Characters:
    """One id per character of an alphabet, then the stop token, then padding."""

    def __init__(self, alphabet: str) -> None:
        self.letters = alphabet
        self._ids = {letter: number for number, letter in enumerate(alphabet)}
        if len(self._ids) != len(alphabet):
            raise ValueError("an alphabet has each character once")
        self.size = len(alphabet) + 2
        self.stop_tokens: tuple[int, ...] = (len(alphabet),)
        self.padding = len(alphabet) + 1

    def encode(self, text: str) -> list[int]:
        unknown = sorted({letter for letter in text if letter not in self._ids})
        if unknown:
            raise ValueError(f"the alphabet lacks {unknown!r}")
        return [self._ids[letter] for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.letters[one] for one in ids if one < len(self.letters))


class Bytes:
    """UTF-8 bytes, then the stop token (256), then padding (257)."""

    size = 258
    stop_tokens: tuple[int, ...] = (256,)
    padding = 257

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(one for one in ids if one < 256).decode(errors="replace")
