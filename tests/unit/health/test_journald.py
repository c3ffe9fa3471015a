"""The journal as a fall-back: only the kernel's own entries, from a cursor on, whatever is in it."""

import asyncio
import contextlib
import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import journald
from health.journald import Entry
from health.kmsg import SourceUnusable

BOOT = "7511e58312e0462ab370937ae7c76999"
TEXT = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."


def line(**fields) -> bytes:
    base = {
        "__CURSOR": "s=1;i=2",
        "_TRANSPORT": "kernel",
        "_BOOT_ID": BOOT,
        "_SOURCE_MONOTONIC_TIMESTAMP": "5000000",
        "__MONOTONIC_TIMESTAMP": "9000000",
        "MESSAGE": TEXT,
    }
    return json.dumps({**base, **fields}).encode()


def test_an_entry_has_the_kernels_boot_and_time():
    entry, cursor = journald.entry(line())
    assert entry == Entry("7511e583-12e0-462a-b370-937ae7c76999", 5_000_000, TEXT)
    assert cursor == "s=1;i=2"


def test_once_the_journal_has_caught_up_its_clock_counts_since_the_kernels_drifts():
    late = line(_SOURCE_MONOTONIC_TIMESTAMP="2600000000", __MONOTONIC_TIMESTAMP="2681000000")
    assert journald.entry(late)[0].monotonic_us == 2_681_000_000
    other = line(_SOURCE_MONOTONIC_TIMESTAMP="2600000000", __MONOTONIC_TIMESTAMP="9681000000")
    assert journald.entry(other)[0].monotonic_us == 2_600_000_000
    only = line(_SOURCE_MONOTONIC_TIMESTAMP="")
    assert journald.entry(only)[0].monotonic_us == 9_000_000


def test_a_message_of_several_lines_comes_as_bytes():
    entry, _ = journald.entry(line(MESSAGE=list(b"NVRM: one\nNVRM: two")))
    assert entry.text == "NVRM: one\nNVRM: two"


def test_what_a_program_logs_is_not_taken_for_the_kernel():
    entry, cursor = journald.entry(line(_TRANSPORT="stdout"))
    assert entry is None
    assert cursor == "s=1;i=2"


@pytest.mark.parametrize("fields", [{"MESSAGE": [300]}, {"_SOURCE_MONOTONIC_TIMESTAMP": "-5"}])
def test_entries_that_make_no_sense_are_refused(fields):
    with pytest.raises(ValueError):
        journald.entry(line(**fields))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_entry_or_refused(raw):
    with contextlib.suppress(ValueError):
        journald.entry(raw)


def fake(tmp_path, *lines: bytes, then: str = "exec sleep 600"):
    """A journalctl that writes its arguments down and prints what it is given."""
    (tmp_path / "entries").write_bytes(b"".join(each + b"\n" for each in lines))
    program = tmp_path / "journalctl"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/entries\n{then}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


async def test_entries_come_in_batches_with_the_place_to_go_on_from(tmp_path):
    program = fake(tmp_path, line(), b"junk", line(__CURSOR="s=1;i=3", MESSAGE="usb: new device"))
    batches = journald.batches("s=1;i=1", program)
    async with asyncio.timeout(20):
        batch = await anext(batches)
    await batches.aclose()
    assert [entry.text for entry in batch.entries] == [TEXT]
    assert (batch.cursor, batch.read, batch.malformed) == ("s=1;i=3", 3, 1)
    assert "--after-cursor=s=1;i=1" in (tmp_path / "asked").read_text()


async def test_without_a_cursor_all_of_this_boot_is_read(tmp_path):
    batches = journald.batches("", fake(tmp_path, line()))
    async with asyncio.timeout(20):
        await anext(batches)
    await batches.aclose()
    assert "--boot=0 --no-tail" in (tmp_path / "asked").read_text()


async def test_a_journal_that_ends_or_is_not_there_is_said(tmp_path):
    with pytest.raises(SourceUnusable, match="status 3"):
        async for _ in journald.batches("", fake(tmp_path, then="exit 3")):
            pass
    with pytest.raises(SourceUnusable, match="cannot run"):
        await anext(journald.batches("", str(tmp_path / "none")))
