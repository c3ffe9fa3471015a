"""The story: the naive loader slips as it says, the unreliable grader does what it says, all is told."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import asyncio
import json
import time

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from support.rlhf_torch_small import small_config

from rlhf import sample_rows
from rlhf.doctor.diagnosis import diagnose
from rlhf.graders.checking import answers_of
from rlhf.graders.protocol import Sample
from rlhf.identity import Envelope, Score
from rlhf.run_folder import RunFolder
from rlhf.story import naive, naive_loader, settings, telling
from rlhf.story.naive_loader import NaiveLoader
from rlhf.story.unreliable import UnreliableGrader


def test_the_naive_loader_is_one_batch_late_for_ever_and_nothing_raises():
    loader = NaiveLoader(lambda prompt, response: float(prompt + response))
    received = []
    try:
        for batch in range(4):
            loader.submit([(str(batch), str(place)) for place in range(3)])
            received.append(loader.take(3))
            until(lambda: len(loader._arrived) == 3)
    finally:
        loader.close()
    assert received == [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [10.0, 11.0, 12.0], [20.0, 21.0, 22.0]]


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.monotonic()


def test_the_doctor_names_the_shift_of_the_naive_run(tmp_path, monkeypatch):
    # Shorter than these small steps, as the real one is shorter than real steps.
    monkeypatch.setattr(naive_loader, "SLEEP_SECONDS", 0.004)
    config = small_config("steps=6", "rollout.batch=16", "warm_up.steps=0", "checks.audits=0")
    digest = naive.train(config, RunFolder(tmp_path))
    assert len(digest) == 32
    rows = list(sample_rows.read(tmp_path / sample_rows.NAME))
    assert [row.seq for row in rows] == list(range(96))
    found = diagnose(tmp_path)
    assert not found.healthy
    assert found.shift == 16, found.verdict
    assert "16 samples late" in found.verdict
    metrics = RunFolder(tmp_path).metric_rows()
    assert [row["step"] for row in metrics] == list(range(6))
    assert all("story/reward" in row for row in metrics)


def sample(seq: int, attempt: int) -> Sample:
    envelope = Envelope("run", seq, 0, seq, attempt, 0, "p", "r")
    return Sample(envelope, [1], [2], "123=", "321")


async def test_the_unreliable_grader_loses_doubles_and_mixes_up_but_answers_in_the_end():
    grader = UnreliableGrader()
    first = await asyncio.gather(*(answers_of(grader, [sample(seq, 1)]) for seq in range(300)))
    reasons = {getattr(answer.outcome, "reason", None) for (answer,) in first}
    details = " ".join(
        answer.outcome.detail for (answer,) in first if not isinstance(answer.outcome, Score)
    )
    assert {"GraderError", "InvalidAnswer"} <= {str(reason) for reason in reasons}
    for told in ("no answer came back", "which was not asked", "answers for 1 samples"):
        assert told in details
    right = [answer.outcome for (answer,) in first if isinstance(answer.outcome, Score)]
    assert len(right) > 200
    assert set(map(str, right)) == {str(Score(1.0))}
    last = await asyncio.gather(*(answers_of(grader, [sample(seq, 4)]) for seq in range(300)))
    assert all(answer.outcome == Score(1.0) for (answer,) in last)


def finished_story(folder):
    """Folders as three short runs leave them."""
    for name in ("naive", "ordered", "undisturbed"):
        run = RunFolder(folder / name)
        run.path.mkdir(parents=True)
        for step in range(8):
            key = "story/reward" if name == "naive" else "objective/scores"
            run.append_metrics({"step": step, key: 0.4 if name == "naive" else 0.5 + step / 14})
    (folder / "naive/order_digest").write_text("aaaa\n")
    for name in ("ordered", "undisturbed"):
        step = folder / name / "checkpoints/step_00000008"
        step.mkdir(parents=True)
        (step / "manifest.json").write_text(json.dumps({"orderDigest": "bbbb"}))
    with RunFolder(folder / "naive").samples.open("wb") as file:
        sample_rows.write(
            file,
            [
                sample_rows.SampleRow(
                    step=seq // 16,
                    seq=seq,
                    reward=float((seq - 16) * 7919 % 97),
                    recomputed=float(seq * 7919 % 97),
                )
                for seq in range(128)
            ],
        )


def test_the_outcome_is_told_in_words_and_as_json(tmp_path, monkeypatch):
    finished_story(tmp_path)
    commands = []
    monkeypatch.setattr(telling, "_together", lambda found, *_: commands.extend(found))
    said: list[str] = []
    told = telling.tell(tmp_path, said.append)
    assert [name for name, _ in commands] == ["warm-up", "ordered", "undisturbed", "naive"]
    report = told.as_json()
    assert [run["name"] for run in report["runs"]] == ["naive", "ordered", "undisturbed"]
    by_name = {run["name"]: run for run in report["runs"]}
    assert by_name["ordered"]["orderDigest"] == by_name["undisturbed"]["orderDigest"] == "bbbb"
    assert by_name["ordered"]["lastReward"] == pytest.approx(0.5 + 5.5 / 14, abs=1e-4)
    assert by_name["naive"]["firstReward"] == 0.4
    assert report["doctor"]["shift"] == 16
    assert report["doctor"]["samples"] > 100
    assert "16 samples late" in report["doctor"]["verdict"]
    assert (tmp_path / "rewards.png").read_bytes().startswith(b"\x89PNG")
    assert any("in the same order: yes." in line for line in said)


def test_how_far_the_runs_are_is_told_while_they_go_on(tmp_path):
    runs = telling.runs_below(tmp_path, tmp_path / "warm")
    assert telling.how_far(runs) == ""
    for run, steps in zip(runs, (3, settings.STEPS, 7), strict=True):
        run.folder.path.mkdir()
        for step in range(steps):
            run.folder.append_metrics({"step": step})
    assert (
        telling.how_far(runs)
        == f"  steps: naive 3/{settings.STEPS}, undisturbed 7/{settings.STEPS}"
    )


def test_a_run_that_fails_is_told_with_its_last_words(tmp_path, capsys, monkeypatch):
    broken = telling.Run("naive", "broken", ("false",), RunFolder(tmp_path / "naive"))
    monkeypatch.setattr(telling, "runs_below", lambda _folder, _start: (broken,))
    monkeypatch.setattr(settings, "WARM_UP", ("warm_up.steps=1",))
    assert telling.story(tmp_path / "story", None) == 1
    assert "ended with code" in capsys.readouterr().err


def test_processes_run_side_by_side_and_leave_their_words_in_files(tmp_path, monkeypatch):
    said: list[str] = []
    telling._together([("one", ("echo", "1")), ("two", ("echo", "2"))], tmp_path, said.append)
    assert sorted(said) == ["one is done", "two is done"]
    assert (tmp_path / "two.log").read_text() == "2\n"
    monkeypatch.setattr(telling, "_NEWS_SECONDS", 0.0)
    telling._together([("slow", ("sleep", "0.3"))], tmp_path, said.append, lambda: "on its way")
    assert said[2] == "on its way"
    assert said[-1] == "slow is done"
    monkeypatch.setattr(telling, "_DEADLINE_SECONDS", 0.2)
    with pytest.raises(telling.StoryFailed, match=r"hung did not end in 0\.2 s"):
        telling._together([("hung", ("sleep", "60"))], tmp_path, said.append)
    monkeypatch.undo()
    with pytest.raises(telling.StoryFailed, match="boom"):
        telling._together([("bad", ("sh", "-c", "echo boom; exit 3"))], tmp_path, said.append)
