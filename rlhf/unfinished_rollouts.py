"""Rollouts that were cut short when a run was told to leave: kept as tokens, gone on from later.

One file in the run folder, written whole or not at all. What is in it is used only for the very
request it was made for: the same slot, draw and prompt, by weights with the same checksum. Keys and
values are not kept; they are read again from the tokens.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rlhf.engine_requests import Unfinished
from rlhf.messages import Request

NAME = "unfinished_rollouts"


class CutShort(msgspec.Struct, frozen=True):
    """A response as far as it came. `finish_reason` is set when it was done, but not yet handed in.

    `seed` tells one draw of a slot from another; `weights` is the checksum of its policy version.
    """

    seq: int
    seed: int
    weights: str
    rollout: Unfinished
    finish_reason: str = ""


class UnfinishedRollouts:
    """What an earlier life of the run has left."""

    def __init__(self, run_folder: Path) -> None:
        self.path = run_folder / NAME
        self._kept = {(one.seq, one.seed): one for one in _read(self.path)}

    def take(self, wanted: Request, weights: str, newest_version: int) -> CutShort | None:
        """What there is of a response, once. None when it was begun for something else, or by a
        version that the run has not come back to.
        """
        found = self._kept.pop((wanted.seq, wanted.seed), None)
        if found is None or found.weights != weights or found.rollout.prompt != wanted.prompt_ids:
            return None
        return found if max(found.rollout.versions, default=0) <= newest_version else None

    def write(self, cut_short: Sequence[CutShort]) -> None:
        """Keeps these for the next life; what was there before is replaced."""
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(msgspec.msgpack.encode(list(cut_short)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)


def _read(path: Path) -> list[CutShort]:
    """Nothing when there is none, or it is not what was written: then all is generated anew."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=list[CutShort])
    except (OSError, msgspec.MsgspecError):
        return []
