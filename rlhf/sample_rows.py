"""`samples.jsonl` of a run folder: one line per sample that entered an update.

The trainer writes it; the viewer and the doctor read it. Lines of a later life of the run replace
those of the same slot that came before.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

NAME = "samples.jsonl"


class SampleRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sample as it entered the loss.

    `reward` is the number that entered; `recomputed` the one that a pure grader gives for the tokens
    in the loss, where somebody asked (an audit), or, of a canary, the one known beforehand. `features` are cheap numbers about the sample, e.g.
    {"length": 12, "logprob_sum": -8.1}; `latency_seconds` is from claim to answer.
    """

    step: int
    seq: int
    reward: float
    draw: int = 0
    group_id: int = 0
    policy_version: int = 0
    prompt_digest: str = ""
    response_digest: str = ""
    recomputed: float | None = None
    canary: bool = False
    parts: dict[str, float] = {}
    features: dict[str, float] = {}
    advantage: float | None = None
    prompt: str = ""
    response: str = ""
    attempt: int = 0
    worker: str = ""
    latency_seconds: float | None = None
    extra: dict[str, Any] = {}


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SampleRow)


def write(target: BinaryIO, rows: Iterable[SampleRow]) -> None:
    """Appends rows to an open file."""
    target.write(b"".join([_encoder.encode(row) + b"\n" for row in rows]))


def read(path: Path) -> Iterator[SampleRow]:
    """The rows of a file, in the order in which they were written.

    A broken last line is the tail of a crash and left out.

    Raises:
        FileNotFoundError: there is none.
        BrokenRow: another line is broken.
    """
    with path.open("rb") as source:
        broken = ""
        for number, line in enumerate(source, start=1):
            if broken:
                raise BrokenRow(broken)
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError as error:
                broken = f"line {number} of {path} is no sample: {error}"


class BrokenRow(ValueError):
    """A line in the middle of the file is no sample."""
