"""The journal on disk: torn tails, damage, one writer, compaction, what a crash leaves."""

import random
import struct
from pathlib import Path
from zlib import crc32

import pytest
from support.rlhf_disk import ForgetfulDisk
from support.rlhf_stream import run, shape

from rlhf import journal
from rlhf.journal import JournalError, JournalInUse, JournalWriter, path_in
from rlhf.journal_compaction import CannotCompact
from rlhf.journal_frames import JournalDamaged, framed
from rlhf.journal_records import Answered, Base, Durable, Missed, Resumed, Started, Trained
from rlhf.journal_replay import restore
from rlhf.missing import Missing, Reason
from rlhf.reward_queue_types import Checkpoint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_in(tmp_path)


def written(path: Path, records: int = 5) -> list:
    """A journal with a start and some records, all durable."""
    with JournalWriter(path) as writer:
        writer.append(Started(shape()))
        writer.extend([Trained(batch, 0.0) for batch in range(records)])
        writer.sync()
    return list(journal.read(path))


def test_records_come_back_as_they_were_numbered_from_zero(path) -> None:
    found = written(path)
    assert [each.number for each in found] == list(range(7))
    assert found[0].record == Started(shape())
    assert [each.record for each in found[1:6]] == [Trained(batch, 0.0) for batch in range(5)]
    assert found[6].record == Durable(6)


def test_numbers_go_on_after_reopening(path) -> None:
    written(path)
    with JournalWriter(path) as writer:
        assert writer.append(Trained(9, 0.0)) == 7


def test_a_torn_tail_is_cut_off_and_counted(path) -> None:
    found = written(path)
    whole = path.read_bytes()
    path.write_bytes(whole + framed(7, Trained(5, 0.0))[:-3])
    seen = []
    with JournalWriter(path, each=seen.append) as writer:
        assert seen == found
        assert writer.tail.torn_bytes == len(framed(7, Trained(5, 0.0))) - 3
        assert path.read_bytes() == whole
        assert writer.next_number == 7


def test_a_changed_byte_among_durable_records_is_damage(path) -> None:
    written(path)
    whole = bytearray(path.read_bytes())
    chance = random.Random(1)
    durable_until = len(whole) - len(framed(6, Durable(6)))
    for _ in range(200):
        place = chance.randrange(durable_until)
        broken = bytearray(whole)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        with pytest.raises((JournalDamaged, JournalError)):
            list(journal.read(path))


def test_garbage_behind_what_is_durable_is_a_torn_tail(path) -> None:
    found = written(path)
    whole = path.read_bytes()
    tail = b"".join(framed(number, Trained(number, 0.0)) for number in range(7, 20))
    # The disk wrote the second block of the tail and not the first.
    path.write_bytes(whole + b"\0" * 100 + tail[100:])
    assert list(journal.read(path)) == found


def test_another_writer_is_refused_while_one_writes(path) -> None:
    with JournalWriter(path):
        with pytest.raises(JournalInUse, match="another process"):
            JournalWriter(path)
    JournalWriter(path).close()


def test_a_file_that_is_none_of_ours_is_refused_and_left_alone(path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"somebody's notes")
    with pytest.raises(JournalError, match="no journal of ours"):
        JournalWriter(path)
    assert path.read_bytes() == b"somebody's notes"
    path.write_bytes(framed(0, Trained(0, 0.0)))
    with pytest.raises(JournalError, match="does not begin with the start"):
        list(journal.read(path))


def test_a_journal_of_a_newer_version_is_refused(path) -> None:
    path.parent.mkdir()
    path.write_bytes(framed(0, Started(shape(), format=99)))
    with pytest.raises(JournalError, match="newer version"):
        JournalWriter(path)


def test_an_intact_record_of_an_unknown_kind_is_told_apart_from_a_torn_one(path) -> None:
    written(path)
    payload = b"\x92\xa3new\x01"
    header = framed(7, Trained(0, 0.0))[:2]
    checksum = crc32(payload, crc32(struct.pack("<Q", 7)))
    path.write_bytes(
        path.read_bytes() + header + struct.pack("<IIQ", len(payload), checksum, 7) + payload
    )
    with pytest.raises(JournalDamaged, match="newer version"):
        list(journal.read(path))


def test_what_was_synced_survives_every_crash(tmp_path) -> None:
    path, chance = path_in(tmp_path), random.Random(5)
    for _ in range(30):
        disk = ForgetfulDisk()
        path.unlink(missing_ok=True)
        writer = JournalWriter(path, disk=disk)
        writer.append(Started(shape()))
        writer.sync()
        synced = 0
        for batch in range(chance.randrange(1, 12)):
            writer.append(Trained(batch, 0.0))
            if chance.random() < 0.5:
                writer.sync()
                synced = batch + 1
        writer.close()
        disk.crash(path, chance)
        kept = [each.record for each in journal.read(path) if isinstance(each.record, Trained)]
        assert len(kept) >= synced
        assert kept == [Trained(batch, 0.0) for batch in range(len(kept))]


def test_the_file_is_on_the_disk_before_sync_returns(tmp_path) -> None:
    disk = ForgetfulDisk()
    writer = JournalWriter(path_in(tmp_path), disk=disk)
    writer.append(Started(shape()))
    writer.sync()
    (size,) = disk.synced.values()
    assert size == path_in(tmp_path).stat().st_size
    writer.append(Trained(0, 0.0))
    writer.flush()
    assert path_in(tmp_path).stat().st_size > size
    writer.close()


class FullDisk(ForgetfulDisk):
    """Has room for a little more than nothing."""

    def sync(self, file) -> None:
        raise OSError(28, "No space left on device", file.name)


def test_after_a_failed_sync_nothing_more_is_written(tmp_path) -> None:
    path = path_in(tmp_path)
    written(path)
    writer = JournalWriter(path, disk=FullDisk())
    writer.append(Trained(9, 0.0))
    with pytest.raises(OSError, match="No space"):
        writer.sync()
    with pytest.raises(JournalError, match="cannot be written since"):
        writer.sync()
    writer.close()


def test_compaction_leaves_what_a_checkpoint_needs(tmp_path) -> None:
    queue, writer = restore(tmp_path, shape())
    batches = run(queue, 6)
    writer.extend(queue.drain())
    writer.sync()
    before = path_in(tmp_path).stat().st_size
    writer.compact(4)
    assert path_in(tmp_path).stat().st_size < before / 2
    found = [each.record for each in journal.read(path_in(tmp_path))]
    assert found[1] == Base(4, batches[3].order_digest)
    assert min(each.seq for each in found if isinstance(each, Answered)) == 16
    numbers = [each.number for each in journal.read(path_in(tmp_path))]
    assert numbers == sorted(set(numbers))
    writer.append(Trained(99, 0.0))
    writer.close()
    assert [each.record for each in journal.read(path_in(tmp_path))][-1] == Trained(99, 0.0)


def test_a_compacted_journal_continues_as_the_whole_one_would(tmp_path) -> None:
    digests = []
    for compact in (False, True):
        folder = tmp_path / str(compact)
        queue, writer = restore(folder, shape())
        run(queue, 5)
        writer.extend(queue.drain())
        saved = Checkpoint("run", writer.sync(), 5, queue.order_digest)
        if compact:
            writer.flush()
            writer.compact(3)
        writer.close()
        queue, writer = restore(folder, shape(), checkpoint=saved)
        run(queue, 3)
        digests.append(queue.order_digest)
        writer.close()
    assert digests[0] == digests[1]


def test_counts_of_what_compaction_removes_stay(tmp_path) -> None:
    queue, writer = restore(tmp_path, shape())
    for _ in range(8):
        slot = queue.dispatch(0.0)
        queue.submit(slot, "a" * 32, str(slot.seq) * 32, 0.0)
    queue.answer(queue.claim(0.0, "g").envelope, Missing(Reason.GRADER_ERROR), 0.0)
    run(queue, 3)
    writer.extend(queue.drain())
    writer.sync()
    for trained in (1, 2):
        writer.flush()
        writer.compact(trained)
    writer.close()
    found = [each.record for each in journal.read(path_in(tmp_path))]
    assert found[1].dropped == {"GraderError": 1}
    assert not [each for each in found if isinstance(each, Missed)]


@pytest.mark.parametrize("trained", [4, 2])
def test_what_was_not_trained_or_is_gone_cannot_be_removed(tmp_path, trained) -> None:
    queue, writer = restore(tmp_path, shape())
    run(queue, 3)
    writer.extend(queue.drain())
    writer.sync()
    writer.flush()
    writer.compact(3)
    with pytest.raises(CannotCompact):
        writer.compact(trained)
    writer.close()


def test_the_compacted_file_replaces_the_old_one_only_when_it_is_durable(tmp_path) -> None:
    disk = ForgetfulDisk()
    queue, writer = restore(tmp_path, shape(), disk=disk)
    run(queue, 3)
    writer.extend(queue.drain())
    writer.sync()
    writer.flush()
    disk.calls.clear()
    writer.compact(2)
    writer.close()
    assert disk.calls == ["open", "sync", "replace", "sync folder journal"]


def test_a_restart_is_noted_with_what_was_torn(tmp_path) -> None:
    _, writer = restore(tmp_path, shape())
    writer.close()
    with path_in(tmp_path).open("ab") as file:
        file.write(b"\xc7Jtorn")
    _, writer = restore(tmp_path, shape(), began="2026-01-01T00:00:00Z")
    writer.close()
    found = [each.record for each in journal.read(path_in(tmp_path))]
    assert Resumed(0, 1, 6, "2026-01-01T00:00:00Z") in found
