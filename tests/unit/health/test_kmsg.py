"""The kernel's log: its record format, gaps, overruns, forgeries, and the three things it can be."""

import asyncio
import contextlib
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.health_kmsg import FakeKmsg, record

from health import kmsg, kmsg_record
from health.kmsg import Batch, Kmsg, SourceUnusable, Tally

XID = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."


def test_a_record_is_read_as_the_kernel_writes_it():
    raw = b"6,1234,5678901,-,caller=T1946;NVRM: two\\x0alines\n SUBSYSTEM=pci\n DEVICE=+pci:1\n"
    assert kmsg_record.head(raw) == kmsg_record.Head(0, 1234, 5678901)
    assert kmsg_record.message(raw) == "NVRM: two\nlines"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b";",
        b"NVRM: Xid",
        b"6,1,2;no flags",
        b"-6,1,2,-;x",
        b"6, 1,2,-;x",
        b"6,1_0,2,-;x",
        b"6,99999999999999999999,2,-;x",
        b"6," + b"1" * 300 + b",2,-;x",
        b"\x00\xff\xfe",
    ],
)
def test_what_is_no_record_has_no_head(raw):
    assert kmsg_record.head(raw) is None


@given(st.binary(max_size=400))
def test_any_bytes_are_counted_and_never_raise(raw):
    tally = Tally(None)
    tally.add(raw)
    batch = tally.batch()
    assert batch.read + batch.malformed == 1
    kmsg_record.message(raw)


@given(st.text(max_size=200))
def test_a_message_comes_back_as_it_was_said(text):
    assert kmsg_record.message(record(0, text)) == text.encode("utf-8", "replace").decode()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40),
    st.integers(min_value=1, max_value=7),
)
def test_read_and_lost_add_up_to_the_numbering_however_it_is_cut_into_batches(steps, size):
    tally, sequence, batches = Tally(0), 0, []
    for count, (gap, driver) in enumerate(steps):
        sequence += 1 + gap
        tally.add(record(sequence, XID if driver else "usb 1-1: new device"))
        if count % size == 0:
            batches.append(tally.batch())
    batches.append(tally.batch())
    assert sum(b.read + b.lost for b in batches) == sequence
    assert sum(len(b.records) for b in batches) == sum(driver for _, driver in steps)
    assert batches[-1].up_to == sequence


def test_lines_that_a_user_wrote_into_the_log_are_counted_and_left_out():
    tally = Tally(None)
    tally.add(record(0, XID, facility=1))
    tally.add(record(1, XID))
    batch = tally.batch()
    assert [r.sequence for r in batch.records] == [1]
    assert batch.foreign == 1


def test_records_seen_before_a_restart_are_passed_over():
    tally = Tally(1)
    for sequence in range(4):
        tally.add(record(sequence, XID))
    assert [r.sequence for r in tally.batch().records] == [2, 3]


def test_a_ring_overrun_is_survived_and_its_records_counted(tmp_path, monkeypatch):
    """A reader that is too slow gets EPIPE once, then the oldest record that is left."""
    answers = [
        record(0, XID),
        OSError(errno.EPIPE, "Broken pipe"),
        record(501, XID),
        BlockingIOError(),
    ]

    def read(fd: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    log = Kmsg(Path("/dev/null"))
    monkeypatch.setattr(kmsg.os, "read", read)
    batch = log.read()
    monkeypatch.undo()
    log.close()
    assert [r.sequence for r in batch.records] == [0, 501]
    assert batch.lost == 500


def test_a_file_is_followed_over_cut_records(tmp_path):
    log = FakeKmsg(tmp_path / "kmsg")
    whole = record(0, XID)
    log.raw(whole[:20])
    reader = Kmsg(log.path)
    assert not reader.read()
    log.raw(whole[20:] + b" SUBSYSTEM=pci\n" + b"garbage\n" + record(1, XID))
    batch = reader.read()
    reader.close()
    assert (batch.read, batch.malformed, batch.lost) == (2, 1, 0)


def test_a_file_that_was_cut_short_is_read_from_its_new_beginning(tmp_path):
    log = FakeKmsg(tmp_path / "kmsg")
    log.say(XID)
    reader = Kmsg(log.path)
    assert len(reader.read().records) == 1
    log.path.write_bytes(b"")
    assert not reader.read()
    log.raw(record(1, "NVRM: x"))
    assert [r.sequence for r in reader.read().records] == [1]
    reader.close()


def test_a_line_of_a_megabyte_costs_neither_memory_nor_its_neighbours(tmp_path):
    log = FakeKmsg(tmp_path / "kmsg")
    log.say(XID)
    log.raw(b"4,1,1,-;" + b"NVRM: " * 200_000 + b"\n")
    log.sequence = 2
    log.say(XID)
    reader = Kmsg(log.path)
    batches = []
    for _ in range(20):
        batches.append(reader.read())
        assert len(reader._rest) <= kmsg_record.MAX_RECORD_BYTES
    reader.close()
    assert [r.sequence for b in batches for r in b.records] == [0, 2]
    assert sum(b.malformed for b in batches) >= 1
    assert sum(b.lost for b in batches) == 1


async def test_a_fifo_gives_records_as_they_are_written_and_outlives_its_writer(tmp_path):
    log = FakeKmsg(tmp_path / "kmsg", fifo=True)
    reader = Kmsg(log.path)
    seen: list[Batch] = []
    batches = reader.batches()
    log.say(XID)
    async with asyncio.timeout(20):
        seen.append(await anext(batches))
        log.close()
        again = os.open(log.path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(again, record(1, XID))
        os.close(again)
        seen.append(await anext(batches))
    await batches.aclose()
    reader.close()
    assert [r.sequence for b in seen for r in b.records] == [0, 1]


def test_a_log_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(SourceUnusable, match="privileged"):
        Kmsg(tmp_path / "none")


def _device() -> Kmsg:
    try:
        return Kmsg(kmsg.DEVICE)
    except SourceUnusable as error:
        pytest.skip(f"the kernel's own log is closed to this user: {error}")


def test_the_real_device_is_read_from_the_beginning_of_the_boot_without_gaps():
    log = _device()
    read = lost = malformed = 0
    while batch := log.read():
        read, lost, malformed = read + batch.read, lost + batch.lost, malformed + batch.malformed
    log.close()
    assert read > 0
    assert (lost, malformed) == (0, 0)


def test_what_root_writes_into_the_real_device_is_not_taken_for_the_kernel():
    log = _device()
    while log.read():
        pass
    try:
        with contextlib.closing(os.fdopen(os.open(kmsg.DEVICE, os.O_WRONLY), "wb", 0)) as device:
            device.write(b"<4>NVRM: Xid (PCI:0000:00:00): 79, written by a test\n")
    except OSError as error:
        log.close()
        pytest.skip(f"the kernel's log cannot be written: {error}")
    batch = log.read()
    log.close()
    assert batch.foreign == 1
    assert batch.records == ()
