"""What a running pipeline waits for now: written whole, believed only where and while it holds."""

import os
import subprocess
import sys
import time

import msgspec

from rlhf import live_state
from rlhf.doctor import present
from rlhf.doctor.findings import Gravity
from rlhf.doctor.stalls import Stalls
from rlhf.identity import SampleId
from rlhf.live_state import LiveState
from rlhf.reward_queue_types import Stage, Wait

STACK = 'grading 17 (most recent call last):\n  File "/x/judge.py", line 42, in ask\n'
WAITS = [
    Wait(Stage.GRADING, (SampleId(17, 0), SampleId(18, 0)), 10.0, "judge#3"),
    Wait(Stage.ORDER, (SampleId(19, 0),), 5.0, ""),
]


def state(now: float = 50.0) -> LiveState:
    return live_state.observed(
        WAITS, now, delivered=4, trained=3, depth=32, where=lambda stall: STACK if stall else ""
    )


def test_it_names_who_holds_what_since_when_and_where(tmp_path) -> None:
    live_state.write(tmp_path, state())
    found = live_state.read(tmp_path)
    assert found is not None
    assert (found.pid, found.trained, found.depth) == (os.getpid(), 3, 32)
    assert found.waits[0] == "grading of s17, s18 by judge#3 since 40.0 s"
    assert found.oldest_seconds == 40.0
    assert "judge.py" in found.stack
    assert [entry.name for entry in tmp_path.iterdir()] == [live_state.NAME]
    live_state.remove(tmp_path)
    assert live_state.read(tmp_path) is None


def test_another_boot_an_old_look_a_dead_process_and_a_torn_file_are_not_believed(tmp_path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    for wrong in (
        {"boot_id": "another"},
        {"written_at": time.monotonic() - 3600},
        {"pid": ended.pid},
    ):
        live_state.write(tmp_path, msgspec.structs.replace(state(), **wrong))
        assert live_state.read(tmp_path) is None, wrong
    (tmp_path / live_state.NAME).write_text('{"bootId": "x", "pi')
    assert live_state.read(tmp_path) is None


def test_a_wait_longer_than_any_before_is_a_warning_with_the_line() -> None:
    section = present.report(state(), Stalls())
    assert section is not None
    (finding,) = section.findings
    assert finding.gravity is Gravity.WARNING
    assert "judge#3" in finding.sentence
    assert "found at judge.py:42 in ask" in finding.sentence
    assert any("3 batches trained" in line for line in section.lines)


def test_a_usual_wait_is_only_told() -> None:
    section = present.report(state(now=20.0), Stalls())
    assert section is not None
    assert section.findings == ()
    slow = Stalls()
    slow.stages["grading"].add(1, 15.0)
    section = present.report(state(now=50.0), slow)
    assert section is not None
    assert section.findings == ()
    assert present.report(None, slow) is None
