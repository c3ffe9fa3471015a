"""The commands below `clusterops rlhf` that train and show, and what they say when they can't."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import json

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from safetensors.torch import load_file
from support.rlhf_torch_small import small_config

from clusterops.cli.main import main
from rlhf import building, sample_rows
from rlhf.config.resolve import dump
from rlhf.model.building import build
from rlhf.run_folder import RunFolder
from rlhf.sample_rows import SampleRow
from rlhf.weights import Snapshots

ROWS = [
    SampleRow(
        step=seq // 3,
        seq=seq,
        reward=0.25 * (seq % 3),
        policy_version=max(0, seq // 3 - 1),
        parts={"right": 0.5},
        prompt="12=",
        response=f"answer \x1b[31m{seq}",
        recomputed=0.25 if seq == 4 else None,
        canary=seq == 5,
        advantage=-0.5,
        attempt=2,
        worker="grader#1",
        latency_seconds=0.125,
    )
    for seq in range(9)
]


@pytest.fixture
def run_folder(tmp_path):
    """A run that has published two versions and written some samples."""
    config = small_config()
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.config.write_text(dump(config, run_id="run-1"))
    folder.append_samples(ROWS)
    vocabulary = building.task(config).vocabulary
    for version in (3, 4):
        model = build(config.model, vocabulary.size, seed=version)
        Snapshots(folder.weights).publish(version, model.state_dict())
    return folder


def test_samples_are_shown_with_everything_and_escaped(run_folder, capsys):
    assert main(["rlhf", "samples", str(run_folder.path), "--step", "1"]) == 0
    printed = capsys.readouterr().out
    assert "s3 (step 1" in printed
    assert "s6" not in printed
    assert "right 0.500" in printed
    assert "0.2500 when computed again" in printed
    assert "canary" in printed
    assert "in 0.125 s, attempt 2 by grader#1" in printed
    assert "\x1b" not in printed


def test_one_slot_and_the_last_step_can_be_asked_for_as_json(run_folder, capsys):
    path = str(run_folder.path)
    assert main(["rlhf", "samples", path, "--seq", "7", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["seq"], row["step"], row["parts"]) == (7, 2, {"right": 0.5})
    assert main(["rlhf", "samples", path, "--limit", "2", "-o", "json"]) == 0
    assert [row["seq"] for row in json.loads(capsys.readouterr().out)] == [6, 7]


def test_the_best_the_worst_and_the_slowest_may_come_first(run_folder, capsys):
    slow = SampleRow(step=3, seq=9, reward=0.5, latency_seconds=9.0, attempt=2001)
    run_folder.append_samples([slow, *(SampleRow(step=3, seq=n, reward=n / 20) for n in (10, 11))])
    path = str(run_folder.path)
    for by, first in (("best", 11), ("worst", 9), ("slowest", 9), ("slot", 9)):
        assert main(["rlhf", "samples", path, "--by", by, "-o", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert rows[0]["seq"] == first, by
    assert main(["rlhf", "samples", path, "--seq", "9"]) == 0
    assert "attempt 1 after 2 restarts" in capsys.readouterr().out
    assert main(["rlhf", "samples", path, "--by", "luck"]) == 2
    assert "slot, best, worst, slowest" in capsys.readouterr().err


def test_what_a_later_life_repeated_replaces_what_was_before(run_folder, capsys):
    run_folder.append_samples([SampleRow(step=1, seq=4, reward=0.875)])
    assert main(["rlhf", "samples", str(run_folder.path), "--seq", "4"]) == 0
    assert "0.8750" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--step", "9"], ["--seq", "99"]])
def test_samples_that_are_not_there_are_told_as_such(run_folder, capsys, words):
    assert main(["rlhf", "samples", str(run_folder.path), *words]) == 3
    assert "steps 0 to 2 are there" in capsys.readouterr().err
    assert main(["rlhf", "samples", str(run_folder.path / "none")]) == 3
    assert sample_rows.NAME in capsys.readouterr().err


def test_the_newest_policy_is_exported_with_where_it_is_from(run_folder, tmp_path, capsys):
    target = tmp_path / "exported"
    assert main(["rlhf", "export", str(run_folder.path), str(target)]) == 0
    capsys.readouterr()
    provenance = json.loads((target / "provenance.json").read_text())
    assert (provenance["runId"], provenance["policyVersion"]) == ("run-1", 4)
    tensors = load_file(target / "model.safetensors")
    state = Snapshots(run_folder.weights).load(4)
    assert torch.equal(tensors["model.embed_tokens.weight"], state["embed_tokens.weight"])
    assert main(["rlhf", "export", str(run_folder.path), str(target), "--version", "3"]) == 0
    assert json.loads((target / "provenance.json").read_text())["policyVersion"] == 3


def test_a_version_that_is_not_there_is_refused_with_those_that_are(run_folder, tmp_path, capsys):
    target = str(tmp_path / "x")
    assert main(["rlhf", "export", str(run_folder.path), target, "--version", "9"]) == 3
    assert "holds versions: 3, 4" in capsys.readouterr().err
    assert main(["rlhf", "export", str(tmp_path), target]) == 3


def test_a_reward_model_is_trained_from_the_command_line(tmp_path, capsys):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(
        "".join(
            json.dumps({"prompt": f"q{n}", "chosen": "yes please", "rejected": "no"}) + "\n"
            for n in range(40)
        )
    )
    words = ["rlhf", "train-reward", str(pairs), str(tmp_path / "model"), "--steps", "8"]
    small = ["--held-back", "0.3", "--context", "12", "--width", "16", "--layers", "1"]
    assert main([*words, *small, "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert "40 of 40 pairs have a text beyond 12 bytes" in captured.err
    assert "step 8/8" in captured.err
    assert "grader.kind=reward-model" in captured.err
    quality = json.loads(captured.out)
    assert 0 <= quality["accuracy"] <= 1
    assert quality["pairs"] > 4
    assert (tmp_path / "model/reward_model.safetensors").exists()
    settings = json.loads((tmp_path / "model/settings.json").read_text())
    assert (settings["context"], settings["width"], settings["layers"]) == (12, 16, 1)
    assert main([*words, "--width", "12"]) == 2
    capsys.readouterr()
    pairs.write_text("{}")
    assert main(words) == 1
    assert "entry 1" in capsys.readouterr().err


def test_train_hands_its_words_on(capsys):
    words = ["rlhf", "train", "--dry-run", "ppo.epochs=2", "optimizer.lr=1e-5"]
    assert main(words) == 0
    assert "command line: optimizer.lr=1e-5" in capsys.readouterr().out
    assert main(["rlhf", "train", "--dry-run", "ppo.epoch=2"]) == 2
    assert "did you mean ppo.epochs?" in capsys.readouterr().err
