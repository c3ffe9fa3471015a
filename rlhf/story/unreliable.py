"""The same reward, given as unreliably as rewards are in practice: late, out of order, twice, not at all.

What befalls a request is a function of its text and of how often it was asked, so the story is the same
each time. Every sample is answered at the third request at the latest.
"""

import asyncio
from collections import Counter
from hashlib import blake2b

from rlhf.tasks.reverse_digits import reversed_share

_asked: Counter[tuple[str, str]] = Counter()
_SLOWEST_SECONDS = 0.12


class Lost(Exception):
    """The answer was lost on its way."""


async def reward(prompt: str, response: str) -> float:
    """The reward of reverse-digits, after whatever happens to this request."""
    _asked[prompt, response] += 1
    fate = _fate(prompt, response, _asked[prompt, response])
    # Late by a little or by a lot, so that answers overtake each other.
    await asyncio.sleep(_SLOWEST_SECONDS * (8 * fate if fate < 0.1 else 0.3 * fate))
    if fate > 0.9 and _asked[prompt, response] < 3:
        raise Lost("no answer came back")
    return reversed_share(prompt, response)


def _fate(prompt: str, response: str, attempt: int) -> float:
    """A number of [0, 1) for a request."""
    text = f"{prompt}|{response}|{attempt}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") / 2**64
