"""Who a sample is: sequence number, draw, and digests over its token ids.

A reward belongs to tokens, not to a position in a list. The identity made here travels with the
sample from dispatch to the loss, and every hop can check it by hashing the tokens it holds.
"""

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from math import isfinite
from typing import NamedTuple

import msgspec

DIGEST_BYTES = 16
_PROMPT, _RESPONSE = b"clusterops/p", b"clusterops/r"
_BYTE_SWAP = sys.byteorder == "big"


class InvalidTokens(ValueError):
    """Token ids that no vocabulary has: negative, too large, or no integers."""


class Impossible(ValueError):
    """A stream that cannot be: sizes and limits that contradict each other."""


class SampleId(NamedTuple):
    """A slot of the stream and which draw fills it. `draw` 0 is the first try."""

    seq: int
    draw: int

    def __str__(self) -> str:
        return f"s{self.seq}" if self.draw == 0 else f"s{self.seq}/draw {self.draw}"


class Digests(NamedTuple):
    """Hashes of a sample's prompt ids and response ids, 32 hexadecimal digits each."""

    prompt: str
    response: str

    def __str__(self) -> str:
        return f"{self.prompt[:12]}/{self.response[:12]}"


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What travels with a sample to its grader and back, and into the loss. Immutable.

    `attempt` numbers the requests for this sample's reward; thousands count the lives of the
    process (1002 = the second attempt after the first restart), so that none is used twice.
    `policy_version` is the number of updates behind the policy that wrote the response.
    """

    run_id: str
    seq: int
    draw: int
    group_id: int
    attempt: int
    policy_version: int
    prompt_digest: str
    response_digest: str

    @property
    def sample_id(self) -> SampleId:
        return SampleId(self.seq, self.draw)

    @property
    def digests(self) -> Digests:
        return Digests(self.prompt_digest, self.response_digest)


class Score(msgspec.Struct, frozen=True, array_like=True):
    """A reward and the named parts it is made of. All numbers are finite."""

    reward: float
    parts: dict[str, float] = {}

    def fault(self) -> str:
        """What is wrong with the numbers, empty when all are finite."""
        if not _finite(self.reward):
            return f"the reward is {self.reward!r}, not a finite number"
        for name, value in self.parts.items():
            if not _finite(value):
                return f"part {name!r} of the reward is {value!r}, not a finite number"
        return ""


def _finite(value: object) -> bool:
    if type(value) is float:
        return isfinite(value)
    return type(value) is int


class Shape(msgspec.Struct, frozen=True):
    """What is fixed about a stream before its first sample; the batches follow from it alone.

    `batch_size` samples are one update; it is a multiple of `group_size`, the responses to one
    prompt. A batch's policy trails the trainer by at most `lag` updates. A slot is filled by at
    most `max_draws` draws (1 = never redrawn) before the run fails.

    Raises:
        Impossible: the numbers contradict each other.
    """

    run_id: str
    seed: int
    batch_size: int
    group_size: int = 1
    lag: int = 1
    max_draws: int = 3

    def __post_init__(self) -> None:
        for name in ("batch_size", "group_size", "max_draws"):
            if getattr(self, name) < 1:
                raise Impossible(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.lag < 0:
            raise Impossible(f"lag is {self.lag}; it must be 0 (synchronous) or more")
        if self.batch_size % self.group_size:
            raise Impossible(
                f"batch_size {self.batch_size} is no multiple of group_size {self.group_size}: "
                "a group would be cut by the border of a batch"
            )
        if not self.run_id:
            raise Impossible("run_id is empty; samples of two runs could not be told apart")

    @property
    def capacity(self) -> int:
        """Samples that may be under way at once."""
        return (self.lag + 1) * self.batch_size

    def batch_of(self, seq: int) -> int:
        """The batch (= update) a slot belongs to."""
        return seq // self.batch_size

    def group_of(self, seq: int) -> int:
        """The group of responses to one prompt a slot belongs to."""
        return seq // self.group_size

    def version_of(self, batch: int) -> int:
        """The policy version a batch is sampled by, whatever the timing."""
        return batch - self.lag if batch > self.lag else 0


def token_digest(ids: Sequence[int], person: bytes) -> str:
    """32 hexadecimal digits over token ids; `person` keeps prompts and responses apart.

    Raises:
        InvalidTokens: an id is no integer of 0 to 2**32 - 1.
    """
    try:
        packed = array("I", ids)
    except (TypeError, OverflowError) as error:
        raise InvalidTokens(f"token ids must be integers of 0 to 2**32 - 1: {error}") from None
    if _BYTE_SWAP:
        packed.byteswap()
    return blake2b(packed, digest_size=DIGEST_BYTES, person=person).hexdigest()


def digests(prompt_ids: Sequence[int], response_ids: Sequence[int]) -> Digests:
    """The digests of a sample, over plain integers (give `tensor.tolist()`, without padding).

    Raises:
        InvalidTokens: an id is no integer of 0 to 2**32 - 1.
    """
    return Digests(token_digest(prompt_ids, _PROMPT), token_digest(response_ids, _RESPONSE))


def reserve_key(seed: int, first_seq: int, draw: int) -> int:
    """Where in the reserve stream of prompts a redrawn group looks: a number of 64 bits.

    `first_seq` is the first slot of the group (all of a group share a prompt).
    """
    return _keyed(b"reserve", seed, first_seq, draw)


def sampling_seed(seed: int, seq: int, draw: int) -> int:
    """The seed of a sample's own random stream, 63 bits: it depends on the slot, on no engine."""
    return _keyed(b"sampling", seed, seq, draw) >> 1


def _keyed(person: bytes, *numbers: int) -> int:
    text = ",".join(map(str, numbers)).encode("ascii")
    return int.from_bytes(blake2b(text, digest_size=8, person=person).digest(), "big")


class OrderDigest:
    """A running hash over samples in the order of delivery: equal digests, equal streams.

    It covers slot, draw, policy version and the digests of the tokens of every sample so far.
    """

    START = "0" * 32

    def __init__(self, value: str = START) -> None:
        self.value = value

    def extend(self, samples: Sequence[tuple[int, int, int, str, str]]) -> str:
        """Adds (seq, draw, policy version, prompt digest, response digest) of one batch."""
        text = ";".join([f"{s},{d},{v},{p},{r}" for s, d, v, p, r in samples])
        hashed = blake2b(f"{self.value}|{text}".encode("ascii"), digest_size=DIGEST_BYTES)
        self.value = hashed.hexdigest()
        return self.value
