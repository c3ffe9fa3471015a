"""A board that computes right and slowly is not well: compared with itself, then with its siblings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health import verification
from health.verification_figures import (
    KEPT_CHECKS,
    KEPT_GPUS,
    HistoryUnreadable,
    grown,
    read,
    slow,
    write,
)

WELL = {"gemm_teraflops": 600.0, "memory_gigabytes_a_second": 3000.0}


def test_a_board_as_fast_as_it_ever_was_raises_no_doubt():
    history = {"GPU-a": [WELL] * 3}
    slightly = {name: value * 0.91 for name, value in WELL.items()}
    assert slow({"GPU-a": slightly}, history) == []


def test_a_board_that_became_slow_is_told_with_what_is_usual():
    history = {"GPU-a": [WELL, WELL, {"gemm_teraflops": 100.0}]}
    (fault,) = slow({"GPU-a": {**WELL, "gemm_teraflops": 500.0}}, history)
    assert fault == "GPU-a: gemm_teraflops is 500, 17 % below its own of 3 checks (600)"


def test_a_board_without_a_history_is_compared_with_its_siblings():
    siblings = {f"GPU-{n}": WELL for n in range(3)}
    (fault,) = slow({**siblings, "GPU-new": {**WELL, "gemm_teraflops": 480.0}}, {})
    assert fault == "GPU-new: gemm_teraflops is 480, 20 % below that of 3 siblings (600)"
    assert slow({**siblings, "GPU-new": {**WELL, "gemm_teraflops": 520.0}}, {}) == []


def test_one_board_alone_and_a_pair_have_nothing_to_be_compared_with():
    assert slow({"GPU-a": {"gemm_teraflops": 1.0}}, {}) == []
    assert slow({"GPU-a": {"gemm_teraflops": 1.0}, "GPU-b": WELL}, {}) == []


def test_the_history_of_a_board_does_not_pass_to_the_one_in_its_place():
    assert slow({"GPU-new": {"gemm_teraflops": 300.0}}, {"GPU-old": [WELL]}) == []


def test_checks_that_passed_are_kept_and_those_that_failed_pull_nothing_down(tmp_path):
    file, notes = tmp_path / "node" / "history", {}
    for _ in range(3):
        assert verification.speed_faults({"GPU-a": WELL}, file, notes) == []
    bad = {"GPU-a": {**WELL, "gemm_teraflops": 50.0}}
    assert len(verification.speed_faults(bad, file, notes)) == 1
    assert read(file) == {"GPU-a": [WELL] * 3}
    assert notes == {}


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 2, "gpus": {}}', "[" * 9000, '{"version":1,"gpus":7}']
)
def test_a_file_that_is_no_history_is_said_and_keeps_no_node_out(tmp_path, content):
    file, notes = tmp_path / "history", {}
    file.write_text(content)
    with pytest.raises(HistoryUnreadable):
        read(file)
    assert verification.speed_faults({"GPU-a": WELL}, file, notes) == []
    assert "history" in notes
    assert read(file) == {"GPU-a": [WELL]}, "and a new one has begun"


def test_a_history_that_cannot_be_written_is_noted(tmp_path):
    (tmp_path / "file").touch()
    notes = {}
    assert verification.speed_faults({"GPU-a": WELL}, tmp_path / "file" / "x", notes) == []
    assert "history" in notes


numbers = st.floats(allow_nan=True) | st.integers() | st.none() | st.text() | st.booleans()
rows = st.lists(st.dictionaries(st.sampled_from(["gemm_teraflops", "x"]), numbers) | numbers)


@given(st.dictionaries(st.text(max_size=5), rows | numbers, max_size=4))
def test_whatever_stands_in_the_file_only_speeds_are_compared(tmp_path_factory, gpus):
    file = tmp_path_factory.mktemp("history") / "h"
    file.write_text(json.dumps({"version": 1, "gpus": gpus}))
    history = read(file)
    assert all(value > 0 for checks in history.values() for row in checks for value in row.values())
    slow({gpu: {"gemm_teraflops": 1.0} for gpu in gpus}, history)
    write(file, history)
    assert read(file) == history


def test_neither_checks_nor_boards_are_kept_without_end():
    history = {}
    for number in range(KEPT_GPUS + 5):
        for _ in range(KEPT_CHECKS + 2 if number == 0 else 1):
            history = grown(history, {f"GPU-{number}": WELL})
    assert len(history) == KEPT_GPUS
    assert "GPU-0" not in history
    assert all(len(checks) <= KEPT_CHECKS for checks in history.values())
