"""What a task is to the loop, and how prompts are chosen: by number, never by what is handy."""

import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from rlhf.tasks.vocabulary import Vocabulary

Reward = Callable[..., Any]
"""`function(prompt, response, **context)`: a number, or a `Score`, or named parts."""


class TaskInvalid(ValueError):
    """A task that cannot be trained on; the message says what is wrong and where."""


class Prompt(NamedTuple):
    """A prompt. `context` is what its grader needs to know besides the text (JSON)."""

    ids: tuple[int, ...]
    text: str
    context: dict[str, Any]


class Demonstration(NamedTuple):
    """A prompt with an answer to imitate, stop token included."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]


class Task(Protocol):
    """Prompts by number, a reward, demonstrations for the warm-up. A pure function of its settings."""

    vocabulary: Vocabulary

    def prompt(self, group: int) -> Prompt:
        """The prompt of a group of the stream."""

    def reserve(self, key: int) -> Prompt:
        """A prompt in place of one that got no reward; `key` is 64 bits (`identity.reserve_key`)."""

    @property
    def reward(self) -> Reward | None:
        """The task's own reward function, pure; none when a grader must be named."""

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Examples for the warm-up, endless; none when the task has no use for one."""


def seeded(*parts: int | str) -> random.Random:
    """A generator for one purpose: its seed is a hash of what it is for."""
    text = "|".join(map(str, parts)).encode()
    return random.Random(int.from_bytes(blake2b(text, digest_size=8).digest(), "big"))
