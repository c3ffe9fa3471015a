"""What one step computes, and the limits it keeps."""

from typing import NamedTuple

from rlhf.kv.blocks import Copy
from rlhf.kv.sequence import Sequence

FAILED = -1
"""In place of a drawn token: the model's numbers for it are no numbers."""


class Limits(NamedTuple):
    """`seats` run at once; a step computes at most `budget` tokens, of one prompt at most `chunk`.

    At an admission `headroom` blocks stay free for each running sequence (it will soon need one),
    and one in a hundred of the pool. `look_ahead` who wait are tried when the first does not fit.
    """

    seats: int = 256
    budget: int = 2048
    chunk: int = 512
    headroom: float = 1.0
    look_ahead: int = 16
    prefix_cache: bool = True


class Chunk(NamedTuple):
    """`length` tokens of a sequence from `start` on.

    `drawing` draw a token from the logits of the last one: nobody while the prompt is unfinished,
    else the sequence and the siblings forked off it.
    """

    sequence: Sequence
    start: int
    length: int
    drawing: tuple[Sequence, ...]


class Plan(NamedTuple):
    """A step: a token each of `decoding`, then `chunks`, then, when that is written, `copies`.

    `fresh` blocks were handed out for it; what they held before belongs to nobody.
    """

    decoding: list[Sequence]
    chunks: list[Chunk]
    copies: list[Copy]
    fresh: list[int]

    @property
    def tokens(self) -> int:
        """How many tokens are computed."""
        return len(self.decoding) + sum(chunk.length for chunk in self.chunks)

    def drawing(self) -> list[Sequence]:
        """Who draws a token, in the order in which the tokens are committed."""
        return self.decoding + [one for chunk in self.chunks for one in chunk.drawing]


class Ended(NamedTuple):
    """A sequence's only terminal event. `reason` is "stop", "length", "failed" or the caller's."""

    sequence: Sequence
    reason: str
