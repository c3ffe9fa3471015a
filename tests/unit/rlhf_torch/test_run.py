"""A whole run as processes: what it leaves behind, how it goes on, what it refuses."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import json
import shutil

import pytest
import yaml

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from support import rlhf_torch_runs as runs

from rlhf import sample_rows
from rlhf.doctor.diagnosis import diagnose
from rlhf.engine_replay_run import replay_sample
from rlhf.run_folder import RunFolder
from rlhf.train import main


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    output = runs.run(folder)
    return folder, output


def test_the_folder_holds_everything_under_its_agreed_name(finished):
    folder, output = finished
    names = {entry.name for entry in folder.iterdir()}
    assert names >= {
        "config.resolved.yaml",
        "metrics.jsonl",
        "samples.jsonl",
        "journal",
        "checkpoints",
        "report.html",
    }
    assert "live.json" not in names
    assert "step 6/6" in output
    assert "all 6 steps are done: score" in output
    assert "warm-up" in output
    assert yaml.safe_load((folder / "config.resolved.yaml").read_text())["steps"] == 6


def test_every_step_has_its_metrics_under_names_that_people_know(finished):
    rows = RunFolder(finished[0]).metric_rows()
    assert [row["step"] for row in rows] == list(range(6))
    wanted = {
        "objective/kl",
        "objective/scores",
        "objective/entropy",
        "policy/clipfrac_avg",
        "policy/approxkl_avg",
        "val/ratio",
        "loss/value_avg",
        "queue/depth",
        "staleness/versions",
        "alignment/audited",
        "perf/tokens_per_second",
        "perf/wait_seconds",
        "rollout/iterations",
        "rollout/kv_waste",
    }
    assert all(wanted <= set(row) for row in rows)
    assert [row["staleness/versions"] for row in rows] == [0, 1, 1, 1, 1, 1]
    assert all(row["val/first_ratio_deviation"] < 1e-5 for row in rows)
    # Only the first batch is sampled by the very weights that train on it.
    assert [row.get("alignment/guard_drift", 1.0) < 1e-4 for row in rows] == [True] + [False] * 5


def test_samples_are_in_order_and_the_doctor_finds_them_well(finished):
    rows = list(sample_rows.read(finished[0] / "samples.jsonl"))
    assert [row.seq for row in rows] == list(range(96))
    assert [row.policy_version for row in rows[::16]] == [0, 0, 1, 2, 3, 4]
    found = diagnose(finished[0])
    assert found.healthy, found.verdict
    assert "6 batches" in found.verdict


def test_each_sample_of_the_last_step_can_be_generated_again(finished):
    for seq in range(80, 96, 5):
        found, _, outcome = replay_sample(finished[0], f"s{seq}")
        assert found.version == 4
        assert outcome.same, outcome.sentence


def test_what_nobody_needs_any_more_is_gone(finished):
    folder = RunFolder(finished[0])
    assert sorted(entry.name for entry in folder.weights.iterdir()) == [
        "version_00000004.safetensors",  # of the last step's samples, for a replay
        "version_00000005.safetensors",
        "version_00000006.safetensors",
    ]
    assert len(list(folder.checkpoints.glob("step_*"))) == 2


def test_the_report_shows_the_run(finished):
    text = (finished[0] / "report.html").read_text()
    assert "all 6 steps are done" in text
    assert text.count("<svg") >= 6


def test_a_finished_run_started_again_is_done_at_once(finished, capfd):
    folder, _ = finished
    before = (folder / "metrics.jsonl").read_bytes()
    assert main(["--run", str(folder)]) == 0
    assert (folder / "metrics.jsonl").read_bytes() == before
    capfd.readouterr()


@pytest.mark.slow
def test_a_finished_run_may_be_given_more_steps_and_goes_on(finished, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(finished[0], folder)
    output = runs.run(folder, "steps=7")
    assert "resumed after step 6 of 7" in output
    assert [row["step"] for row in RunFolder(folder).metric_rows()] == list(range(7))
    assert diagnose(folder).healthy


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["seed=1"], "seed: 0 then, 1 now"),
        (["ppo.epochs=3", "kl.beta=0.1"], "ppo.epochs: 2 then, 3 now"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused_by_name(finished, capsys, words, told):
    assert main(["--run", str(finished[0]), *words]) == 2
    assert told in capsys.readouterr().err


def test_resume_never_and_must_are_taken_at_their_word(finished, tmp_path, capsys):
    assert main(["--run", str(finished[0]), "--resume", "never"]) == 2
    assert main(["--run", str(tmp_path / "none"), "--resume", "must"]) == 2
    assert "holds no run to resume" in capsys.readouterr().err


def test_a_folder_with_somebody_elses_files_is_refused(tmp_path, capsys):
    (tmp_path / "journal").mkdir()
    assert main(["--run", str(tmp_path)]) == 2
    assert "holds journal of something else" in capsys.readouterr().err


@pytest.mark.slow
def test_a_journal_of_another_run_is_refused_by_the_pipeline(finished, tmp_path):
    folder = tmp_path / "mixed"
    shutil.copytree(finished[0], folder)
    config = yaml.safe_load((folder / "config.resolved.yaml").read_text())
    (folder / "config.resolved.yaml").write_text(yaml.safe_dump(config | {"run_id": "other-1"}))
    code, output = runs.ended(runs.start(folder, "steps=7"))
    assert code == 1
    assert "other-1" in output
    assert 'class="end failed"' in (folder / "report.html").read_text()
    assert [row["step"] for row in RunFolder(folder).metric_rows()] == list(range(6))


def test_a_dry_run_prints_every_value_with_its_origin_and_makes_nothing(tmp_path, capsys):
    folder = tmp_path / "dry"
    assert main(["--run", str(folder), "--dry-run", "ppo.epochs=2", "queue.lag=3"]) == 0
    printed = capsys.readouterr().out
    assert "command line: ppo.epochs=2" in printed
    assert "# queue capacity: 1024 samples" in printed
    assert yaml.safe_load(printed)["optimizer.lr"] == pytest.approx(3e-4)
    assert not folder.exists()


def test_a_wrong_setting_is_a_usage_error(capsys):
    assert main(["--dry-run", "ppo.epoch=2"]) == 2
    assert "did you mean ppo.epochs?" in capsys.readouterr().err


def test_a_crash_leaves_a_report_that_says_so(tmp_path, capsys):
    code = main(
        [
            "--run",
            str(tmp_path / "run"),
            "task.name=jsonl",
            f"task.prompts={tmp_path / 'none.jsonl'}",
            "grader.kind=helpful-harmless",
        ]
    )
    assert code == 1
    assert "No such file" in capsys.readouterr().err
    text = (tmp_path / "run/report.html").read_text()
    assert "TaskInvalid" in text
    assert 'class="end failed"' in text


@pytest.mark.slow
def test_lag_0_trains_on_samples_of_the_newest_policy(tmp_path):
    folder = tmp_path / "synchronous"
    runs.run(folder, "queue.lag=0", "steps=3")
    rows = RunFolder(folder).metric_rows()
    assert [row["staleness/versions"] for row in rows] == [0, 0, 0]
    assert all(abs(row["staleness/mismatch_kl"]) < 1e-6 for row in rows)


@pytest.mark.slow
def test_as_a_job_its_folder_is_the_checkpoint_directory_and_the_result_lies_in_it(
    finished, tmp_path
):
    code, output = runs.ended(runs.start(tmp_path, as_job=True))
    assert code == 0, output
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["steps"] == 6
    assert (
        result["weightsSha256"] == runs.final_weights(tmp_path) == runs.final_weights(finished[0])
    )
    assert {"metrics.jsonl", "report.html", "step_00000006"} <= {
        entry.name for entry in tmp_path.iterdir()
    }
    assert (finished[0] / "checkpoints/result.json").exists()


def test_manifests_carry_the_order_digest_of_the_journal(finished):
    folder = finished[0]
    newest = max(folder.glob("checkpoints/step_*/manifest.json"))
    digest = json.loads(newest.read_text())["orderDigest"]
    assert digest[:16] in "".join(diagnose(folder).lines())
