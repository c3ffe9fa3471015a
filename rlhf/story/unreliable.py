"""The same reward, given as unreliably as rewards are in practice: late, out of order, twice, for
another sample, not at all.

What befalls a request is a function of its sample and attempt, so the story is the same each time.
From the fourth attempt on a request is answered, so that nothing has to be drawn again.
"""

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from rlhf.graders.protocol import Answer, Sample
from rlhf.identity import Score
from rlhf.tasks.reverse_digits import reversed_share

_SLOWEST_SECONDS = 1.0
_PATIENCE = 4
"""Attempts that may go wrong, less one."""


class Lost(Exception):
    """The answer was lost on its way."""


class UnreliableGrader:
    """The reward of reverse-digits, after whatever happens to a request."""

    name = "unreliable"
    pure = False
    largest_batch = 1

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """One answer for the sample, at best.

        Raises:
            Lost: now and then.
        """
        (sample,) = samples
        envelope = sample.envelope
        fate = _fate(envelope.seq, envelope.attempt)
        # Most are late by a little, some by a lot: answers overtake each other.
        await asyncio.sleep(_SLOWEST_SECONDS * (0.3 + fate if fate < 0.02 else 0.05 * fate))
        answer = sample.answered(Score(reversed_share(sample.prompt, sample.response)))
        if envelope.attempt % 1000 >= _PATIENCE:
            return [answer]
        if fate > 0.95:
            raise Lost("no answer came back")
        if fate > 0.92:
            return [answer, answer]
        if fate > 0.90:
            other = msgspec.structs.replace(envelope, seq=envelope.seq + 1)
            return [Answer(other, answer.outcome)]
        return [answer]

    async def close(self) -> None:
        """Nothing was started."""


def _fate(seq: int, attempt: int) -> float:
    """A number of [0, 1) for a request."""
    text = f"{seq}|{attempt}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / 2**64
