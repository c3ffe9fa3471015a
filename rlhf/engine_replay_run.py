"""One rollout of a run's folder, generated again from the policy that wrote it.

The journal has its tokens and log-probabilities, the configuration how it was drawn, the weights folder
the policy. What was compacted or retired meanwhile cannot be replayed, and that is said.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlhf import journal
from rlhf.config.sections import RunConfig
from rlhf.engine_choice import engine_for
from rlhf.engine_replay import Recorded, Replay, replay
from rlhf.generation import PromptTooLong
from rlhf.identity import Shape, sampling_seed
from rlhf.journal_frames import JournalDamaged
from rlhf.journal_records import AnyRecord, Started, Submitted
from rlhf.responses import Response, unpack
from rlhf.run_folder import RunFolder
from rlhf.run_policy import NoPolicy, RunPolicy, policy_of
from rlhf.sampling import Parameters
from rlhf.weights import Snapshots

TOLERANCE = 1e-4
"""The largest difference of a log-probability that rounding in another batch explains."""


class NotReplayable(Exception):
    """What a replay needs is not there, or not any more; the text says what."""


class Found(NamedTuple):
    """A rollout in the journal: its slot, which draw, the shape of its run, and what was recorded."""

    seq: int
    draw: int
    shape: Shape
    response: Response

    @property
    def version(self) -> int:
        """The policy version that wrote it; the first, where it was carried over to others."""
        if self.response.versions:
            return self.response.versions[0]
        return self.shape.version_of(self.shape.batch_of(self.seq))


def parse(rollout: str) -> tuple[int, int | None]:
    """Slot and draw of "s12", "12" or "s12/2"; without a draw the last one is meant.

    Raises:
        NotReplayable: it is none of these.
    """
    match = re.fullmatch(r"s?(\d{1,12})(?:/(?:draw )?(\d{1,4}))?", rollout.strip())
    if match is None:
        raise NotReplayable(f"{rollout[:40]!r} names no rollout: say s12, or s12/1 for a redraw")
    return int(match[1]), int(match[2]) if match[2] else None


def find(folder: Path, seq: int, draw: int | None = None) -> Found:
    """A rollout of a run, by its slot.

    Raises:
        NotReplayable: the journal does not hold it, or cannot be read.
    """
    shape: Shape | None = None
    newest: Submitted | None = None
    for record in _records(folder):
        if isinstance(record, Started):
            shape = record.shape
        if isinstance(record, Submitted) and record.seq == seq and draw in (None, record.draw):
            newest = record
    if shape is None or newest is None or not newest.payload:
        raise NotReplayable(
            f"the journal of {folder} holds no response of slot {seq}"
            + (f", draw {draw}" if draw is not None else "")
            + ": it was never sampled, or its batch was compacted after it was trained on; "
            + replayable(folder)
        )
    try:
        return Found(seq, newest.draw, shape, unpack(newest.payload))
    except msgspec.MsgspecError as error:
        raise NotReplayable(f"the response of slot {seq} in {folder}: {error}") from error


def replayable(folder: Path) -> str:
    """Which rollouts of a run can be had again, in words: recorded ones whose policy is there.

    Raises:
        NotReplayable: the journal cannot be read.
    """
    versions = Snapshots(RunFolder(folder).weights).versions()
    shape: Shape | None = None
    there: list[int] = []
    for record in _records(folder):
        if isinstance(record, Started):
            shape = record.shape
        elif isinstance(record, Submitted) and record.payload and shape is not None:
            there += [record.seq] * (shape.version_of(shape.batch_of(record.seq)) in versions)
    if not there:
        return "no rollout of this run can be replayed any more"
    return f"slots {min(there)} to {max(there)} can be replayed"


def _records(folder: Path) -> Iterator[AnyRecord]:
    try:
        for numbered in journal.read(journal.path_in(folder)):
            yield numbered.record
    except FileNotFoundError as error:
        raise NotReplayable(f"{folder} is no run's folder: it has no journal") from error
    except (OSError, JournalDamaged, journal.JournalError) as error:
        raise NotReplayable(f"the journal of {folder}: {error}") from error


def replay_sample(
    folder: Path, rollout: str, tolerance: float = TOLERANCE
) -> tuple[Found, RunPolicy, Replay]:
    """Generates a rollout of a run again, alone, and compares; with the policy that did it.

    Raises:
        NotReplayable: says what is missing.
    """
    found = find(folder, *parse(rollout))
    several = sorted(set(found.response.versions))
    if len(several) > 1:
        raise NotReplayable(
            f"slot {found.seq} was drawn by policy versions {several[0]} to {several[-1]} in turn "
            "(rollout.max_version_lag): a replay is of one"
        )
    try:
        policy = policy_of(folder, found.version)
    except NoPolicy as error:
        raise NotReplayable(f"{error}; {replayable(folder)}") from error
    recorded = Recorded(
        str(found.seq),
        0,
        found.response.prompt_ids,
        found.response.response_ids,
        found.response.logprobs,
        found.response.finish_reason,
    )
    parameters = _parameters(policy.config, found, policy.vocabulary.stop_tokens)
    engine = engine_for(policy.model, found.version)
    try:
        return found, policy, replay(engine, recorded, parameters, tolerance)
    except PromptTooLong as error:
        raise NotReplayable(f"{error}: the configuration was changed after this rollout") from error


def _parameters(config: RunConfig, found: Found, stop_tokens: tuple[int, ...]) -> Parameters:
    rollout = config.rollout
    return Parameters(
        max_new_tokens=rollout.max_new_tokens,
        seed=sampling_seed(found.shape.seed, found.seq, found.draw),
        temperature=rollout.temperature,
        top_k=rollout.top_k,
        top_p=rollout.top_p,
        stop_tokens=stop_tokens,
    )
