"""Digits to be given back in reverse: small, and the right answer depends on the prompt.

That dependence is the point. A reward that belongs to another prompt teaches nothing here, while a
task whose reward hangs on the response alone would learn from it happily.
"""

from collections.abc import Iterator

from rlhf.tasks.task import Demonstration, Prompt, Reward, seeded
from rlhf.tasks.vocabulary import Characters, Vocabulary

_DIGITS = "0123456789"


class ReverseDigits:
    """Prompts like `31415=`; the response is `51413` and the stop token.

    The reward is the share of positions that are right. Demonstrations have each digit replaced with
    probability `corruption`: after the warm-up the policy knows what to do and does it badly.
    """

    def __init__(self, seed: int, digits: int = 5, corruption: float = 0.55) -> None:
        self.seed = seed
        self.digits = digits
        self.corruption = corruption
        self.vocabulary: Vocabulary = Characters(_DIGITS + "=")

    def prompt(self, group: int) -> Prompt:
        return self._drawn("prompt", group)

    def reserve(self, key: int) -> Prompt:
        return self._drawn("reserve", key)

    @property
    def reward(self) -> Reward:
        return reversed_share

    def demonstrations(self, seed: int) -> Iterator[Demonstration]:
        """Worked examples for the warm-up, some of whose digits are wrong; endless."""
        chance = seeded("demonstrations", self.seed, seed)
        while True:
            number = "".join(chance.choice(_DIGITS) for _ in range(self.digits))
            answer = "".join(
                chance.choice(_DIGITS) if chance.random() < self.corruption else digit
                for digit in reversed(number)
            )
            encode = self.vocabulary.encode
            yield Demonstration(
                tuple(encode(number + "=")), (*encode(answer), *self.vocabulary.stop_tokens)
            )

    def _drawn(self, *key: int | str) -> Prompt:
        chance = seeded("reverse", self.seed, *key)
        text = "".join(chance.choice(_DIGITS) for _ in range(self.digits)) + "="
        return Prompt(tuple(self.vocabulary.encode(text)), text, {})


def reversed_share(prompt: str, response: str) -> float:
    """The reward: how much of the prompt's digits comes back in reverse."""
    return correct_share(prompt.rstrip("=")[::-1], response)


def correct_share(wanted: str, given: str) -> float:
    """The share of positions that are right, of the longer of the two."""
    right = sum(
        one == other
        for one, other in zip(wanted, given[: len(wanted)].ljust(len(wanted)), strict=True)
    )
    return right / max(len(wanted), len(given), 1)
