"""A journal cut at any byte: what remains is a run that goes on as if nothing had happened."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rlhf_stream import run, shape

from rlhf import journal
from rlhf.journal import JournalDamaged, JournalError, path_in
from rlhf.journal_frames import framed
from rlhf.journal_records import Answered, IgnoredAnswer, Missed, Started, Submitted
from rlhf.journal_replay import restore
from rlhf.missing import Reason, Then
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_types import Checkpoint

BATCHES = 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Checkpoint, int]:
    """A run of four batches with a checkpoint after the second; and where its durable part ends."""
    folder = tmp_path_factory.mktemp("finished")
    queue, writer = restore(folder, shape())
    run(queue, 2)
    writer.extend(queue.drain())
    saved = Checkpoint("run", writer.sync(), 2, queue.order_digest)
    durable = path_in(folder).stat().st_size
    run(queue, BATCHES - 2)
    writer.extend(queue.drain())
    writer.flush()
    writer.close()
    return folder, saved, durable


@pytest.fixture(scope="module")
def digest() -> str:
    queue = RewardQueue(shape())
    run(queue, BATCHES)
    return queue.order_digest


def test_cut_at_any_byte_the_run_goes_on_to_the_same_end(finished, digest, tmp_path) -> None:
    folder, saved, durable = finished
    content = path_in(folder).read_bytes()
    target = path_in(tmp_path)
    target.parent.mkdir()
    # Every byte of the first record, and a stride through the others.
    for length in [*range(durable, durable + 120), *range(durable + 120, len(content) + 1, 29)]:
        target.write_bytes(content[:length])
        queue, writer = restore(tmp_path, shape(), checkpoint=saved)
        run(queue, BATCHES - 2)
        writer.close()
        assert queue.order_digest == digest


def test_cut_before_the_checkpoint_it_is_refused_and_not_guessed(finished, tmp_path) -> None:
    folder, saved, durable = finished
    content = path_in(folder).read_bytes()
    target = path_in(tmp_path)
    target.parent.mkdir()
    for length in range(0, durable - 1, 37):
        target.write_bytes(content[:length])
        with pytest.raises(JournalError, match="older checkpoint"):
            restore(tmp_path, shape(), checkpoint=saved)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_flipped_byte_is_found_or_belongs_to_the_tail(place, mask) -> None:
    payload = content()
    place = int(place * len(payload))
    flipped = bytearray(payload)
    flipped[place] ^= mask
    folder = Path(journal_folder())
    path_in(folder).write_bytes(flipped)
    intact = records_before(place)
    try:
        found = list(journal.read(path_in(folder)))
    except (JournalDamaged, JournalError):
        return
    assert [each.number for each in found][: len(intact)] == intact
    assert len(found) <= len(intact), "nothing behind the flipped byte is believed"


_FRAMES = [
    framed(number, record)
    for number, record in enumerate(
        [
            Started(shape()),
            Submitted(0, 0, "a" * 32, "b" * 32, 0.5, 1.0, b"payload"),
            Answered(0, 0, 1, 0.25, {"x": 1.0}, 1.0, 2.0, "g"),
            Missed(1, 0, 1, Reason.TIMED_OUT, Then.RETRY, 0.0, 1.0),
        ]
    )
]


def content() -> bytes:
    return b"".join(_FRAMES)


def records_before(place: int) -> list[int]:
    """Numbers of the records that end before a byte."""
    end, found = 0, []
    for number, frame in enumerate(_FRAMES):
        end += len(frame)
        if end <= place:
            found.append(number)
    return found


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory):
    global _FOLDER
    _FOLDER = tmp_path_factory.mktemp("flipped")
    path_in(_FOLDER).parent.mkdir()
    yield
    shutil.rmtree(_FOLDER)


def journal_folder() -> str:
    return str(_FOLDER)


_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(max_size=20)
_RECORDS = st.one_of(
    st.builds(
        Submitted, st.integers(0, 2**40), st.integers(0, 9), _TEXT, _TEXT, _FLOATS, _FLOATS,
        st.binary(max_size=50),
    ),
    st.builds(
        Answered, st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 9), _FLOATS,
        st.dictionaries(_TEXT, _FLOATS, max_size=4), _FLOATS, _FLOATS, _TEXT, st.booleans(),
    ),
    st.builds(IgnoredAnswer, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9),
              st.sampled_from(["Late", "Conflict"]), _FLOATS),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_RECORDS, max_size=20))
def test_whatever_is_written_is_read_back(records) -> None:
    path = path_in(Path(journal_folder()))
    path.write_bytes(
        framed(0, Started(shape()))
        + b"".join(framed(number, record) for number, record in enumerate(records, start=1))
    )
    assert [each.record for each in journal.read(path)][1:] == records
