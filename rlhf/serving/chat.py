"""From the messages of a conversation to a prompt: as the model's own template says, or plainly."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rlhf.tasks.vocabulary import Vocabulary


class Message(NamedTuple):
    """One turn."""

    role: str
    content: str


class Template(Protocol):
    """How a conversation is written for the model."""

    def ids(self, messages: Sequence[Message], vocabulary: Vocabulary) -> list[int]:
        """The prompt that the next turn of the assistant follows.

        Raises:
            ValueError: it cannot be written in this vocabulary.
        """
        ...


class PlainTemplate:
    """For models trained on bare prompts: one message is the prompt itself; more are a transcript."""

    def ids(self, messages: Sequence[Message], vocabulary: Vocabulary) -> list[int]:
        """The prompt."""
        if len(messages) == 1:
            return vocabulary.encode(messages[0].content)
        lines = [f"{message.role}: {message.content}" for message in messages]
        return vocabulary.encode("\n".join([*lines, "assistant:"]))


class TokenizerTemplate:
    """The template that a Hugging Face tokenizer brings."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def ids(self, messages: Sequence[Message], vocabulary: Vocabulary) -> list[int]:
        """The prompt; `vocabulary` is the same tokenizer's."""
        del vocabulary
        turns = [{"role": message.role, "content": message.content} for message in messages]
        found = self._tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return [int(one) for one in found]
