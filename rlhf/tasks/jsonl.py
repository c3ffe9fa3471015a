"""The user's own task: prompts from a file of JSON lines, the reward from a Python function.

Each line is an object with `prompt`, optionally `response` (a demonstration for the warm-up), and
whatever else the reward function wants to know; that comes to it as `context`. What has the name of
the function's first or second parameter does not: these are the prompt and the policy's response.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clusterops.train.cursor import permuted
from rlhf.tasks.task import Demonstration, Prompt, Reward, TaskInvalid, seeded
from rlhf.tasks.vocabulary import Vocabulary


class JsonLines:
    """Prompts in an order that is a function of seed and epoch; each once an epoch."""

    def __init__(
        self,
        path: Path,
        reward: Reward | None,
        vocabulary: Vocabulary,
        seed: int,
        longest_prompt: int,
    ) -> None:
        """Reads and checks all of the file.

        Args:
            path: of the prompts.
            reward: of the user; none when another grader scores.
            vocabulary: of the model.
            seed: of the order.
            longest_prompt: in tokens; what is left of the context beside the response.

        Raises:
            TaskInvalid: the file is missing or empty, or a line is no prompt or too long.
        """
        self.vocabulary = vocabulary
        self.reward = reward
        self._seed = seed
        self._entries = read_entries(path)
        self._prompts = [
            _prompt(path, number, entry, vocabulary, longest_prompt)
            for number, entry in enumerate(self._entries, start=1)
        ]

    @property
    def size(self) -> int:
        """Prompts in the file."""
        return len(self._prompts)

    def prompt(self, group: int) -> Prompt:
        """The prompt of a group; epochs follow one another in orders of their own."""
        epoch, position = divmod(group, self.size)
        return self._prompts[permuted(position, self.size, self._seed, epoch)]

    def reserve(self, key: int) -> Prompt:
        return self._prompts[key % self.size]

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Lines that have a `response`, in random order; ends at once when none has."""
        found = [
            Demonstration(
                prompt.ids,
                (*self.vocabulary.encode(str(entry["response"])), *self.vocabulary.stop_tokens[:1]),
            )
            for prompt, entry in zip(self._prompts, self._entries, strict=True)
            if entry.get("response")
        ]
        chance = seeded("demonstrations", self._seed, seed)
        while found:
            yield found[chance.randrange(len(found))]


def read_entries(path: Path) -> list[dict[str, Any]]:
    """All lines of a file of JSON objects; empty lines are passed over.

    Raises:
        TaskInvalid: it can't be read, has no object, or a line is none. Names the line.
    """
    try:
        # By line feeds alone: JSON's texts may hold what `splitlines` takes for an end, as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskInvalid(f"{path}: {error}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskInvalid(f"{path}, line {number}: {error}") from None
        if not isinstance(entry, dict):
            raise TaskInvalid(
                f'{path}, line {number}: a JSON object is wanted, like {{"prompt": ...}}'
            )
        entries.append(entry)
    if not entries:
        raise TaskInvalid(f"{path} is empty: there is nothing to train on")
    return entries


def _prompt(
    path: Path, number: int, entry: dict[str, Any], vocabulary: Vocabulary, longest: int
) -> Prompt:
    text = entry.get("prompt")
    if not isinstance(text, str) or not text:
        raise TaskInvalid(f"{path}, entry {number}: `prompt` must be a text that is not empty")
    try:
        ids = tuple(vocabulary.encode(text))
    except ValueError as error:
        raise TaskInvalid(f"{path}, entry {number}: {error}") from None
    if len(ids) > longest:
        raise TaskInvalid(
            f"{path}, entry {number}: the prompt has {len(ids)} tokens, and the model's context "
            f"leaves {longest} beside the response; shorten it, or raise model.context"
        )
    return Prompt(ids, text, {name: value for name, value in entry.items() if name != "prompt"})
