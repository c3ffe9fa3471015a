"""Steering the mood of sentences: a character model of English learns to say friendly things.

The language is that of the documentation which ships with CPython, mixed with short verdicts of both
moods, so that the start is neutral. The reward counts words of a small lexicon. It does not depend on
the prompt, so this task shows a bounded KL, not alignment.
"""

import re
from collections.abc import Iterator
from functools import cache
from pydoc_data.topics import topics
from typing import Any

from rlhf.identity import Score
from rlhf.tasks.task import Demonstration, Prompt, Reward, seeded
from rlhf.tasks.vocabulary import Characters, Vocabulary

POSITIVE = (
    "good", "great", "fine", "lovely", "bright", "warm", "kind", "happy", "pleasant",
    "brilliant", "charming", "clever", "gentle", "delightful", "wonderful", "excellent",
    "superb", "cheerful", "graceful", "honest",
)  # fmt: skip
NEGATIVE = (
    "bad", "poor", "dull", "awful", "cold", "cruel", "sad", "nasty", "boring", "dreadful",
    "clumsy", "stupid", "harsh", "tedious", "terrible", "horrible", "dismal", "gloomy",
    "shallow", "hollow",
)  # fmt: skip
_SUBJECTS = (
    "film", "book", "song", "meal", "day", "room", "talk", "game", "plan", "story", "garden",
    "journey",
)  # fmt: skip
_OPENINGS = ("The {} was", "That {} is", "I found the {}", "Everybody called the {}")
_DEGREES = ("", "", "quite ", "very ", "rather ")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz ,.'-"
_WORD = re.compile(r"[a-z]+")


class Sentiment:
    """Prompts like `The garden was`; a response goes on to the end of the sentence.

    The reward is (friendly - unfriendly words) / all words of the response, at most `most_words`
    counted, so that neither silence nor one word shouted pays.
    """

    def __init__(self, seed: int, most_words: int = 4, response_characters: int = 28) -> None:
        self.seed = seed
        self.most_words = most_words
        self.response_characters = response_characters
        self.vocabulary: Vocabulary = Characters(_ALPHABET)

    def prompt(self, group: int) -> Prompt:
        return self._drawn("prompt", group)

    def reserve(self, key: int) -> Prompt:
        return self._drawn("reserve", key)

    @property
    def reward(self) -> Reward:
        return self._mood

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Passages of the shipped text for the warm-up; endless."""
        chance = seeded("demonstrations", self.seed, seed)
        passages = documentation()
        encode, stop = self.vocabulary.encode, self.vocabulary.stop_tokens
        while True:
            if chance.random() < 0.3:
                start = chance.randrange(len(passages) - 64)
                text = passages[start : start + 14 + self.response_characters]
                yield Demonstration(tuple(encode(text[:14])), tuple(encode(text[14:])))
                continue
            opening = chance.choice(_OPENINGS).format(chance.choice(_SUBJECTS))
            yield Demonstration(tuple(encode(opening)), (*encode(_verdict(chance)), *stop))

    def _mood(self, _prompt: str, response: str) -> Score:
        words = _WORD.findall(response.lower())
        friendly = sum(word in POSITIVE for word in words)
        unfriendly = sum(word in NEGATIVE for word in words)
        mood = (friendly - unfriendly) / max(1, min(len(words), self.most_words))
        mood = min(1.0, max(-1.0, mood))
        known = sum(word in known_words() for word in words) / max(1, len(words))
        return Score(0.8 * mood + 0.2 * known, {"mood": mood, "words": known})

    def _drawn(self, *key: int | str) -> Prompt:
        chance = seeded("sentiment", self.seed, *key)
        text = chance.choice(_OPENINGS).format(chance.choice(_SUBJECTS))
        return Prompt(tuple(self.vocabulary.encode(text)), text, {})


def _verdict(chance: Any) -> str:
    """` rather dull and sad.`: one or two words, of either mood."""
    first, second = chance.choice(POSITIVE + NEGATIVE), chance.choice(POSITIVE + NEGATIVE)
    more = f" and {second}" if chance.random() < 0.5 else ""
    return f" {chance.choice(_DEGREES)}{first}{more}."


@cache
def documentation() -> str:
    """The text of CPython's topics in the alphabet of this task, spaces collapsed."""
    text = " ".join(topics[name] for name in sorted(topics))
    return re.sub(r" +", " ", "".join(one if one in _ALPHABET else " " for one in text))


@cache
def known_words() -> frozenset[str]:
    """Words of the documentation and of the verdicts: what counts as English here."""
    templates = " ".join((*_OPENINGS, *_SUBJECTS, *_DEGREES, *POSITIVE, *NEGATIVE, "and"))
    return frozenset(_WORD.findall(f"{documentation()} {templates}".lower()))
