"""The doctor on a journal: proof of order, stalls, staleness, what is missing; the command."""

import json
from pathlib import Path

import pytest
from support.rlhf_faults import STORM, run
from support.rlhf_stream import shape

from clusterops.cli.main import main
from rlhf import journal, sample_rows
from rlhf.doctor import order, stalls
from rlhf.doctor.diagnosis import diagnose
from rlhf.identity import OrderDigest
from rlhf.journal import JournalWriter, path_in
from rlhf.journal_frames import Numbered
from rlhf.journal_records import (
    Answered,
    Delivered,
    Failed,
    Missed,
    Stalled,
    Started,
    Submitted,
    Trained,
)
from rlhf.missing import Reason, Then
from rlhf.sample_rows import SampleRow

STACK = (
    "no answer in 1 s; the function was at\nThread 0x1 (most recent call first):\n"
    '  File "/x/loader.py", line 42 in load\n  File "/x/main.py", line 7 in main\n'
)


def digest_of(seqs: list[int]) -> str:
    """The order digest over a first batch of samples as `sample` writes them."""
    return OrderDigest().extend([(seq, 0, 0, f"{seq:032x}", f"{seq:032x}") for seq in seqs])


def written(folder: Path, records: list) -> None:
    with JournalWriter(path_in(folder)) as writer:
        writer.extend([Started(shape(batch_size=2, group_size=1)), *records])
        writer.sync()


def sample(seq: int, at: float = 0.0, grading: float = 1.0) -> list:
    return [
        Submitted(seq, 0, f"{seq:032x}", f"{seq:032x}", at, at + 0.5),
        Answered(seq, 0, 1, 1.0, {}, at + 0.5, at + 0.5 + grading, "g"),
    ]


@pytest.fixture(scope="module")
def stormy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stormy")
    run(folder, shape(), 12, faults=STORM._replace(restarts_every=120), seed=3)
    return folder


@pytest.fixture(scope="module")
def records(stormy) -> list[Numbered]:
    return list(journal.read(path_in(stormy)))


def test_a_disturbed_run_is_proven_in_order(stormy) -> None:
    found = diagnose(stormy)
    assert found.healthy
    assert found.verdict.startswith("in order: 48 samples in 12 batches, each delivered once")
    figures = found.as_json()
    assert figures["order"]["faults"] == []
    assert figures["staleness"]["max"] <= 1
    assert sum(figures["missing"]["missing"].values()) > 0


def proof_without(records: list[Numbered], dropped) -> order.OrderProof:
    return order.prove([each for each in records if each is not dropped])


@pytest.mark.parametrize("kind", [Answered, Submitted, Delivered])
def test_any_lost_record_of_the_last_batches_is_a_contradiction(records, kind) -> None:
    """Behind the last restart nothing is said twice, so every record counts."""
    last = next(each for each in reversed(records) if isinstance(each.record, kind))
    if kind is Delivered:
        last = [each for each in records if isinstance(each.record, Delivered)][-2]
    assert proof_without(records, last).faults


def test_each_contradiction_is_named() -> None:
    base = [Numbered(0, Started(shape(batch_size=2, group_size=1)))]
    cases = {
        "when it was batch 0's turn": [Delivered(1, 2, 0, "x", 0.0)],
        "delivered without a reward": [sample(0)[0], Delivered(0, 2, 0, "x", 0.0)],
        "order digest": [*sample(0), *sample(1), Delivered(0, 2, 0, "x", 0.0)],
        "sampled by policy 5": [*sample(0), *sample(1), Delivered(0, 2, 5, "x", 0.0)],
        "trained before it was delivered": [Trained(0, 0.0)],
        "answered twice": [*sample(0), sample(0)[1]],
        "a second response": [sample(0)[0], sample(0)[0]],
        "has 1 samples": [*sample(0), Delivered(0, 1, 0, "x", 0.0)],
        "which has none": [sample(0)[1]],
    }
    for words, extra in cases.items():
        numbered = [Numbered(number, each) for number, each in enumerate(extra, start=1)]
        faults = order.prove(base + numbered).faults
        assert any(words in each for each in faults), (words, faults)


def test_a_failed_run_is_a_fault_with_its_reason(tmp_path) -> None:
    written(tmp_path, [Failed(7, 2, "slot s7/draw 2 of batch 3 gets no reward: TimedOut", 1.0)])
    found = diagnose(tmp_path)
    assert not found.healthy
    assert found.verdict == "the run failed: slot s7/draw 2 of batch 3 gets no reward: TimedOut"


def test_a_stall_at_the_end_is_a_fault_and_names_stage_slot_and_line(tmp_path) -> None:
    waits = ["grading of s3 by http-1 since 130.0 s"]
    written(tmp_path, [*sample(0), Stalled(10.0, 140.0, waits, STACK)])
    verdict = diagnose(tmp_path).verdict
    assert verdict == (
        "nothing moved for 130.0 s: grading of s3 by http-1 since 130.0 s; found at "
        "loader.py:42 in load"
    )


def test_a_stall_that_was_overcome_and_hung_graders_are_warnings(tmp_path) -> None:
    proof = order.OrderProof()
    digest = "0" * 32
    records = [*sample(0), *sample(1)]
    for number, each in enumerate([Started(shape(batch_size=2, group_size=1)), *records]):
        proof.add(Numbered(number, each))
    digest = proof._digest(9, Delivered(0, 2, 0, "", 0.0))
    missed = Missed(1, 0, 1, Reason.TIMED_OUT, Then.RETRY, 0.0, 1.0, "g", STACK)
    written(
        tmp_path,
        [
            *records, missed, Stalled(1.0, 2.0, ["grading of s1"]),
            Delivered(0, 2, 0, digest, 3.0),
        ],
    )  # fmt: skip
    found = diagnose(tmp_path)
    assert found.healthy
    told = [each.sentence for each in found.findings]
    assert told == [
        "nothing moved for 1.0 s: grading of s1",
        "graders hung 1 times at loader.py:42 in load",
    ]


def test_percentiles_the_maximum_and_the_slowest_slots_are_shown_by_stage() -> None:
    records = [Started(shape(batch_size=200, group_size=1))]
    for seq in range(200):
        records += sample(seq, at=0.0, grading=9.0 if seq == 77 else 0.1)
    records += [Trained(0, 0.5), Delivered(1, 200, 0, "x", 10.0)]
    waits = stalls.fold(Numbered(number, each) for number, each in enumerate(records))
    figures = waits.stages["grading"].figures()
    assert (figures["max"], figures["slowest"][0]) == (9.0, 77)
    assert figures["p50"] == pytest.approx(0.1, rel=0.06)


def test_what_the_trainer_waited_for_is_shared_among_the_stages_of_its_last_sample() -> None:
    records = [
        Started(shape(batch_size=2, group_size=1)),
        Trained(-1, 10.0),
        Submitted(0, 0, "a", "b", 8.0, 12.0),
        Submitted(1, 0, "a", "c", 8.0, 11.0),
        Answered(1, 0, 1, 1.0, {}, 11.0, 11.5),
        Answered(0, 0, 1, 1.0, {}, 13.0, 19.0),
        Delivered(0, 2, 0, "x", 20.0),
    ]
    waits = stalls.fold(Numbered(number, each) for number, each in enumerate(records))
    idle = {name: stage.idle_seconds for name, stage in waits.stages.items()}
    assert idle == {"rollout": 2.0, "claim": 1.0, "grading": 6.0, "order": 1.0, "training": 0.0}


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        (STACK, "loader.py:42 in load"),
        ('  File "a.py", line 1, in outer\n  File "b.py", line 2, in inner\n', "b.py:2 in inner"),
        ("", ""),
    ],
)
def test_the_innermost_line_of_either_kind_of_stack_is_named(stack, place) -> None:
    assert stalls.innermost(stack) == place


def test_a_damaged_journal_is_a_fault_and_the_rest_is_still_told(tmp_path) -> None:
    written(tmp_path, [*sample(0), *sample(1)])
    content = bytearray(path_in(tmp_path).read_bytes())
    content[len(content) // 2] ^= 0xFF
    path_in(tmp_path).write_bytes(content)
    found = diagnose(tmp_path)
    assert not found.healthy
    assert "is broken, although everything before record" in found.verdict


def test_a_journal_that_lost_batches_the_run_has_trained_on_is_a_fault(tmp_path) -> None:
    written(
        tmp_path,
        [
            *sample(0),
            *sample(1),
            Delivered(0, 2, 0, digest_of([0, 1]), 3.0),
        ],
    )
    samples = tmp_path / sample_rows.NAME
    first = [SampleRow(step=0, seq=seq, reward=1.0) for seq in (0, 1)]
    with samples.open("ab") as file:
        sample_rows.write(file, first)
    assert diagnose(tmp_path).healthy
    with samples.open("ab") as file:
        sample_rows.write(file, [SampleRow(step=1, seq=2, reward=1.0)])
    found = diagnose(tmp_path)
    assert not found.healthy
    assert "slot s2 of batch 1 was trained on, and the journal ends with 1 batches" in found.verdict


def test_the_command_prints_the_verdict_first_and_exits_by_it(stormy, tmp_path, capsys) -> None:
    assert main(["rlhf", "doctor", str(stormy)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("in order: 48 samples")
    assert any("grading" in line and "p99" in line for line in out)
    written(tmp_path, [Failed(-1, 0, "the disk is full", 1.0)])
    assert main(["rlhf", "doctor", str(tmp_path), "-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "the run failed: the disk is full"
    assert told["healthy"] is False


def test_a_run_that_goes_on_can_be_examined(tmp_path) -> None:
    with JournalWriter(path_in(tmp_path)) as writer:
        writer.extend([Started(shape(batch_size=2, group_size=1)), *sample(0)])
        writer.sync()
        with path_in(tmp_path).open("ab") as file:
            file.write(b"\xc7J half a record")
        assert diagnose(tmp_path).healthy


def test_the_command_refuses_a_folder_without_a_run(tmp_path, capsys) -> None:
    assert main(["rlhf", "doctor", str(tmp_path)]) == 3
    assert "holds no run" in capsys.readouterr().err
