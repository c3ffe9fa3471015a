"""One rollout of a run's folder, generated again from the policy that wrote it.

The journal has its tokens and log-probabilities, the configuration how it was drawn, the weights folder
the policy. What was compacted or retired meanwhile cannot be replayed, and that is said.
"""

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlhf import building, journal
from rlhf.config.resolve import read_resolved
from rlhf.config.sections import RunConfig
from rlhf.engine_choice import engine_for
from rlhf.engine_replay import Recorded, Replay, replay
from rlhf.identity import Shape, sampling_seed
from rlhf.journal_frames import JournalDamaged
from rlhf.journal_records import Started, Submitted
from rlhf.model.building import build
from rlhf.responses import Response, unpack
from rlhf.run_folder import RunFolder
from rlhf.sampling import Parameters
from rlhf.weights import Snapshots, SnapshotUnreadable


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
        """The policy version that wrote it."""
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
    try:
        for numbered in journal.read(journal.path_in(folder)):
            record = numbered.record
            if isinstance(record, Started):
                shape = record.shape
            if isinstance(record, Submitted) and record.seq == seq and draw in (None, record.draw):
                newest = record
        response = unpack(newest.payload) if newest is not None and newest.payload else None
    except (OSError, JournalDamaged, journal.JournalError, msgspec.MsgspecError) as error:
        raise NotReplayable(f"the journal of {folder}: {error}") from error
    if shape is None or newest is None or response is None:
        raise NotReplayable(
            f"the journal of {folder} holds no response of slot {seq}"
            + (f", draw {draw}" if draw is not None else "")
            + ": it was never sampled, or its batch was compacted after it was trained on"
        )
    return Found(seq, newest.draw, shape, response)


def replay_sample(folder: Path, rollout: str) -> tuple[Found, Replay]:
    """Generates a rollout of a run again, alone, and compares.

    Raises:
        NotReplayable: says what is missing.
    """
    found = find(folder, *parse(rollout))
    run = RunFolder(folder)
    try:
        config = read_resolved(run.config)
        vocabulary = building.task(config).vocabulary
        state = Snapshots(run.weights).load(found.version, config.model.device)
        model = build(config.model, vocabulary.size, config.seed)
        model.load_state_dict(state)
    except (OSError, ValueError, SnapshotUnreadable) as error:
        raise NotReplayable(f"policy version {found.version} of {folder}: {error}") from error
    recorded = Recorded(
        str(found.seq),
        0,
        found.response.prompt_ids,
        found.response.response_ids,
        found.response.logprobs,
        found.response.finish_reason,
    )
    parameters = _parameters(config, found, vocabulary.stop_tokens)
    return found, replay(engine_for(model, found.version), recorded, parameters)


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
