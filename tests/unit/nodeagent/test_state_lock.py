"""A state folder has one agent at a time, and a dead one does not keep it."""

import os
import stat

import pytest

from clusterops.nodeagent.state_lock import StateInUse, StateLock


def test_the_second_is_refused_and_told_who_has_it(tmp_path) -> None:
    state = tmp_path / "deep" / "state"
    lock = StateLock(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    with pytest.raises(StateInUse, match=str(os.getpid())):
        StateLock(state)
    lock.release()
    StateLock(state).release()


def test_a_stale_lock_file_is_no_lock(tmp_path) -> None:
    (tmp_path / "agent.lock").write_text("999999999999")
    lock = StateLock(tmp_path)
    assert (tmp_path / "agent.lock").read_text() == str(os.getpid())
    lock.release()
