"""The ledger: nothing lost, nothing twice, whatever happens to process, disk and clock."""

import random
import resource
import signal
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health.events import Event, PciAddress, Quantity, Reading, Source, Xid
from health.ledger import Ledger, LedgerError, LedgerFull, LedgerInUse, Position, StoredIncident
from health.timeline import Boot

GPU = PciAddress(0, 0x1B, 0)


def xid(sequence: int, code: int = 79, *, boot: str = "b1", at: float | None = None) -> Event:
    return Event(
        at=float(sequence) if at is None else at,
        what=Xid(GPU, code, "GPU has fallen off the bus."),
        boot=boot,
        source=Source.KMSG,
        sequence=sequence,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger" / "health.db"


def test_events_positions_and_counts_come_back_after_reopening(path):
    ledger = Ledger(path)
    reading = Event(at=3.0, what=Reading(Quantity.REMAP_PENDING, 1, GPU), source=Source.NVML)
    ledger.record(
        [xid(1), reading], positions={"kmsg": Position("b1", 1)}, counts={"lost": 2, "read": 9}
    )
    ledger.record([], counts={"lost": 1})
    ledger.save_note("since", "yesterday")
    ledger.close()
    again = Ledger(path)
    assert list(again.events()) == [xid(1), reading]
    assert again.position("kmsg") == Position("b1", 1)
    assert again.position("journal") is None
    assert again.counts() == {"lost": 3, "read": 9}
    assert again.note("since") == "yesterday"
    again.close()


def test_a_record_read_twice_is_kept_once(path):
    ledger = Ledger(path)
    assert ledger.record([xid(1), xid(2)]) == [xid(1), xid(2)]
    assert ledger.record([xid(2), xid(3), xid(1, boot="b2")]) == [xid(3), xid(1, boot="b2")]
    assert len(list(ledger.events())) == 4
    ledger.close()


def test_the_files_are_for_this_user_alone(path):
    ledger = Ledger(path)
    ledger.record([xid(1)])
    modes = {p.name: p.stat().st_mode & 0o077 for p in path.parent.iterdir()}
    ledger.close()
    assert set(modes.values()) == {0}, modes


def test_a_second_daemon_is_refused_and_the_lock_ends_with_its_owner(path):
    ledger = Ledger(path)
    with pytest.raises(LedgerInUse, match="another health daemon"):
        Ledger(path)
    ledger.close()
    Ledger(path).close()


def test_a_ledger_of_a_newer_release_is_refused_and_left_alone(path):
    Ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(LedgerError, match="newer release"):
        Ledger(path)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (99,)
    db.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_broken_file_is_set_aside_and_a_new_one_begun(path, seed):
    ledger = Ledger(path)
    ledger.record([xid(n) for n in range(200)])
    ledger.prune(0.0)
    ledger.close()
    rng = random.Random(seed)
    content = bytearray(path.read_bytes())
    content[0:4096] = rng.randbytes(4096)
    path.write_bytes(content)
    again = Ledger(path)
    assert again.set_aside is not None
    assert again.set_aside.read_bytes() == bytes(content)
    assert again.record([xid(1)]) == [xid(1)]
    again.close()


def test_a_row_that_cannot_be_read_any_more_is_passed_over(path):
    ledger = Ledger(path)
    ledger.record([xid(1), xid(2)])
    ledger.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE events SET body = x'ff' WHERE sequence = 1")
    db.close()
    again = Ledger(path)
    assert list(again.events()) == [xid(2)]
    again.close()


def test_what_is_too_old_or_too_much_goes_and_open_incidents_stay(path):
    ledger = Ledger(path, keep_seconds=100.0, keep_events=5)
    ledger.record([xid(n, at=float(n)) for n in range(20)])
    ledger.save_incidents(
        [StoredIncident("old", 1.0, 2.0, b"{}"), StoredIncident("open", 1.0, None, b"{}")]
    )
    assert ledger.prune(110.0) == 15
    assert [event.sequence for event in ledger.events()] == [15, 16, 17, 18, 19]
    assert [incident.id for incident in ledger.incidents()] == ["open"]
    assert ledger.prune(500.0) == 5
    ledger.close()


def test_a_full_disk_loses_nothing_that_was_kept_and_passes(path):
    """A limit on the size of files stands in for the disk: SQLite sees the same failed write."""
    ledger = Ledger(path)
    ledger.record([xid(1)], positions={"kmsg": Position("b1", 1)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = path.with_name(path.name + "-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1, hard))
    try:
        with pytest.raises(LedgerFull, match="make room"):
            ledger.record([xid(n) for n in range(2, 200)], positions={"kmsg": Position("b1", 199)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert list(ledger.events()) == [xid(1)]
    assert ledger.position("kmsg") == Position("b1", 1)
    assert len(ledger.record([xid(n) for n in range(2, 200)])) == 198
    ledger.close()


WRITER = """
import sys
from pathlib import Path
from health.ledger import Ledger, Position
from health.events import Event, PciAddress, Source, Xid

ledger = Ledger(Path(sys.argv[1]))
position = ledger.position("kmsg")
number = position.sequence if position else 0
while True:
    events = [
        Event(at=float(n), what=Xid(PciAddress(0, 1, 0), 79), boot="b", source=Source.KMSG, sequence=n)
        for n in range(number + 1, number + 8)
    ]
    number += 7
    ledger.record(events, positions={"kmsg": Position("b", number)}, counts={"read": 7})
    print(number, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_events_and_position_in_step(path):
    rng = random.Random(5)
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        acknowledged = 0
        for _ in range(rng.randint(1, 60)):
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        writer.wait(30)
        writer.stdout.close()
        ledger = Ledger(path)
        position = ledger.position("kmsg")
        assert position is not None
        assert position.sequence >= acknowledged
        assert [e.sequence for e in ledger.events()] == list(range(1, position.sequence + 1))
        assert ledger.counts() == {"read": position.sequence}
        ledger.close()


def test_boots_are_kept_and_brought_up_to_date(path):
    ledger = Ledger(path)
    ledger.save_boot(Boot(1, "b1", 0.0, 1e9, 5.0))
    ledger.save_boot(Boot(1, "b1", 0.0, 1e9, 50.0))
    ledger.save_boot(Boot(2, "b2", 60.0, 1e9 + 60, 1.0))
    assert ledger.boots() == [
        Boot(1, "b1", 0.0, 1e9, 50.0),
        Boot(2, "b2", 60.0, 1e9 + 60, 1.0),
    ]
    ledger.close()


@settings(max_examples=20, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, 15), max_size=8), max_size=8))
def test_any_replays_keep_each_record_once_in_the_order_first_seen(tmp_path_factory, batches):
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "health.db")
    for batch in batches:
        ledger.record([xid(number) for number in batch])
    first_seen = list(dict.fromkeys(number for batch in batches for number in batch))
    assert [event.sequence for event in ledger.events()] == first_seen
    ledger.close()
