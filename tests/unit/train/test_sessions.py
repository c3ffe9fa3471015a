"""What a training job sees: resuming, stepping, saving, sections, and ends of every kind."""
# What raises here is a whole session, with what the job does in it.
# ruff: noqa: PT012

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.train_jobs import Crash, Walk, walk

from clusterops import train
from clusterops.api import names
from clusterops.train.disk import PosixDisk
from clusterops.train.options import SessionOptions
from clusterops.train.reader import survey


def checkpoints(folder: Path) -> list[int]:
    return sorted(one.manifest.step for one in survey(PosixDisk(), folder)[0])


def raise_term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_job_runs_without_operator_and_without_directory() -> None:
    job, run = walk(None, total=5)
    assert len(job.trail) == run.step == 5
    assert run.finished
    assert run.durable_step is None


def test_the_first_run_and_every_later_one_are_the_same_command(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    walk(folder, total=4)
    job, run = walk(folder, total=8)
    assert run.durable_step == 8
    assert len(job.trail) == 8


@pytest.mark.parametrize("crash_before", [1, 5, 7, 19])
def test_a_crashed_job_ends_as_if_nothing_had_been(tmp_path: Path, crash_before: int) -> None:
    undisturbed, _ = walk(None)
    with pytest.raises(Crash):
        walk(tmp_path, crash_before=crash_before, save_every_steps=2)
    job, run = walk(tmp_path, save_every_steps=2, seed=99)  # the seed is restored, not repeated
    if crash_before > 2:
        assert job.trail == undisturbed.trail
    assert run.finished


def test_a_finished_job_does_no_step_more(tmp_path: Path) -> None:
    first, _ = walk(tmp_path, total=6)
    again, run = walk(tmp_path, total=6)
    assert again.trail == first.trail
    assert run.finished


def test_generators_are_restored_after_whatever_happens_before_the_first_step(
    tmp_path: Path,
) -> None:
    undisturbed, _ = walk(None)
    with pytest.raises(Crash):
        walk(tmp_path, crash_before=10, save_every_steps=10)
    job = Walk()
    with train.session(total_steps=20, checkpoint_dir=tmp_path) as run:
        run.resume(job=job)
        random.random()  # a loader that shuffles, or skips to its place
        for _ in run.steps():
            job.step()
            run.report()
    assert job.trail == undisturbed.trail


def test_what_the_body_does_after_report_is_part_of_the_step(tmp_path: Path) -> None:
    """A scheduler stepped after `report` must not lag behind in the checkpoint."""
    job = Walk()
    with pytest.raises(train.Leave):
        with train.session(total_steps=4, checkpoint_dir=tmp_path) as run:
            run.resume(job=job)
            for step in run.steps():
                run.report()
                if step == 2:
                    raise_term()
                job.step()
    again, _ = walk(tmp_path, total=3)
    assert again.trail == job.trail
    assert len(again.trail) == 3


def test_sigterm_saves_leaves_with_143_and_loses_no_step(tmp_path: Path) -> None:
    undisturbed, _ = walk(None)
    random.seed(3)
    job = Walk()
    with pytest.raises(train.Leave) as left:
        with train.session(total_steps=20, checkpoint_dir=tmp_path) as run:
            run.resume(job=job)
            for step in run.steps():
                job.step()
                if step == 6:
                    raise_term()
                run.report()
    assert left.value.code == 143
    assert isinstance(left.value, SystemExit)
    assert run.step == run.durable_step == 7
    assert not run.finished
    resumed, _ = walk(tmp_path)
    assert resumed.trail == undisturbed.trail


def test_an_earlier_signal_handler_is_called_too_and_put_back(tmp_path: Path) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with pytest.raises(train.Leave):
            with train.session(checkpoint_dir=tmp_path) as run:
                run.resume(job=Walk())
                for _ in run.steps():
                    raise_term()
        assert seen == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_notice_is_served_inside_a_long_section(tmp_path: Path) -> None:
    undisturbed, _ = walk(None, total=10)
    random.seed(3)
    job = Walk()
    polled = 0
    with pytest.raises(train.Leave):
        with train.session(total_steps=10, checkpoint_dir=tmp_path) as run:
            run.resume(job=job)
            for step in run.steps():
                job.step()
                run.report()
                if step == 4:
                    with run.section("eval") as section:
                        for batch in range(100):
                            random.random()  # evaluation draws numbers of its own
                            if batch == 3:
                                raise_term()
                            polled += 1
                            section.poll()
    assert polled == 4
    assert run.durable_step == 5
    resumed, _ = walk(tmp_path, total=10)
    assert resumed.trail == undisturbed.trail


def test_a_section_within_an_open_step_is_cut_and_the_whole_step_saved(tmp_path: Path) -> None:
    """Saving there would store the weights of one step under the number of the one before."""
    job = Walk()
    with pytest.raises(train.Leave):
        with train.session(total_steps=10, checkpoint_dir=tmp_path) as run:
            run.resume(job=job)
            for step in run.steps():
                job.step()
                with run.section("eval") as section:
                    if step == 4:
                        raise_term()
                    section.poll()
                    assert step != 4
                assert section.cut == (step == 4)
                run.report()
    assert run.durable_step == len(job.trail) == 5


def test_a_section_does_not_shift_the_random_numbers_of_training() -> None:
    undisturbed, _ = walk(None, total=5)
    random.seed(3)
    job = Walk()
    with train.session(total_steps=5) as run:
        run.resume(job=job)
        for _ in run.steps():
            with run.section("eval"):
                random.random()
            job.step()
            run.report()
    assert job.trail == undisturbed.trail


def test_a_section_of_one_rank_alone_is_cut_short_by_a_notice_to_leave(tmp_path: Path) -> None:
    with pytest.raises(train.Leave):
        with train.session(total_steps=5, checkpoint_dir=tmp_path) as run:
            run.resume(job=Walk())
            for _ in run.steps():
                with run.section("eval", alone=True) as section:
                    raise_term()
                    section.poll()
                    pytest.fail("the section went on")
                assert section.cut
    assert run.durable_step == 1


def test_the_longest_time_without_a_poll_is_known() -> None:
    ticks = iter(range(0, 1000, 10))
    with train.session(total_steps=3) as run:
        run._progress.clock = lambda: float(next(ticks))
        for _ in run.steps():
            run.report()
    assert run.longest_unpolled_seconds >= 10


def test_plain_values_are_saved_as_they_are_at_the_time(tmp_path: Path) -> None:
    with train.session(total_steps=3, checkpoint_dir=tmp_path) as run:
        resumed = run.resume(job=Walk(), cursor={"epoch": 0}, name="x")
        assert resumed.fresh
        for step in run.steps():
            run.values["cursor"]["epoch"] = step * 10
            run.values["name"] = f"x{step}"
            run.report()
    with train.session(total_steps=3, checkpoint_dir=tmp_path) as run:
        resumed = run.resume(job=Walk(), cursor={"epoch": 0}, name="x")
        assert not resumed.fresh
        assert resumed.step == 3
        assert resumed.values == {"cursor": {"epoch": 20}, "name": "x2"}


def test_a_part_of_the_state_is_not_restored_silently(tmp_path: Path) -> None:
    walk(tmp_path, total=2)
    with pytest.raises(train.ResumeMismatch, match=r"\['job', 'second'\].*holds \['job'\]"):
        with train.session(total_steps=4, checkpoint_dir=tmp_path) as run:
            run.resume(job=Walk(), second=Walk())
    with train.session(total_steps=2, checkpoint_dir=tmp_path) as run:
        second = Walk()
        assert run.resume(job=Walk(), second=second, strict=False).step == 2
        assert second.trail == []


def test_an_object_that_refuses_its_state_names_itself(tmp_path: Path) -> None:
    walk(tmp_path, total=2)

    class Refusing(Walk):
        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            del state
            raise RuntimeError("size mismatch")

    with pytest.raises(train.ResumeMismatch, match="job does not accept its saved state"):
        with train.session(total_steps=4, checkpoint_dir=tmp_path) as run:
            run.resume(job=Refusing())
    assert checkpoints(tmp_path) == [2]  # it is the job that is wrong, not the checkpoint


def test_a_job_that_resumes_and_trains_nothing_fails(tmp_path: Path) -> None:
    walk(tmp_path, total=4)
    with pytest.raises(train.NothingTrained, match="resumed at step 4 of 8"):
        with train.session(total_steps=8, checkpoint_dir=tmp_path) as run:
            run.resume(job=Walk())
            for _batch in iter(()):  # a loader at the end of its epoch
                run.report()


def test_a_job_that_its_own_error_ends_saves_nothing_more(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        walk(tmp_path, crash_before=5, save_every_steps=3)
    assert checkpoints(tmp_path) == [3]


def test_a_step_left_by_break_before_report_is_not_saved(tmp_path: Path) -> None:
    job = Walk()
    with train.session(total_steps=10, checkpoint_dir=tmp_path) as run:
        run.resume(job=job)
        for step in run.steps():
            job.step()
            if step == 4:
                break  # the state is that of five steps, the count four
            run.report()
            if step < 3:
                run.save()
    assert checkpoints(tmp_path)[-1] == 3
    with train.session(total_steps=10, checkpoint_dir=tmp_path) as run:
        run.resume(job=job)
        for _ in run.steps():
            assert len(job.trail) == 3
            run.report()
            break  # after report: the step counts
    assert checkpoints(tmp_path)[-1] == 4


def test_finish_ends_a_job_without_a_number_of_steps(tmp_path: Path) -> None:
    with train.session(checkpoint_dir=tmp_path) as run:
        run.resume(job=Walk())
        for step in run.steps():
            run.report()
            if step == 2:
                run.finish()
    assert run.finished
    assert checkpoints(tmp_path)[-1] == 3


def test_a_loop_of_ones_own_reports_each_step(tmp_path: Path) -> None:
    job = Walk()
    with train.session(total_steps=6, checkpoint_dir=tmp_path, save_every_steps=2) as run:
        run.resume(job=job)
        for _batch in range(6):
            job.step()
            run.report()
    assert run.finished
    assert run.durable_step == 6


def test_metrics_and_seconds_trained_are_known_without_reading_shards(tmp_path: Path) -> None:
    with train.session(total_steps=1, checkpoint_dir=tmp_path) as run:
        run.resume(job=Walk())
        for _ in run.steps():
            run.report(loss=1.5, broken=float("nan"), note="x")
    content = json.loads((tmp_path / "step_00000001" / "manifest.json").read_text())
    assert content["resume"]["metrics"] == {"loss": 1.5, "broken": None, "note": "x"}
    assert content["resume"]["trainedSeconds"] >= 0
    assert content["resume"]["objects"] == ["job"]


def test_the_order_digest_of_the_cursor_is_in_the_manifest(tmp_path: Path) -> None:
    cursor = train.DataCursor(10, batch_size=3)
    with train.session(total_steps=2, checkpoint_dir=tmp_path) as run:
        run.resume(cursor=cursor)
        for _ in run.steps():
            cursor.consume(cursor.issue())
            run.report()
    content = json.loads((tmp_path / "step_00000002" / "manifest.json").read_text())
    assert content["orderDigest"] == cursor.order_digest != ""


def test_permanent_checkpoints_come_by_seconds_trained(tmp_path: Path) -> None:
    clock = {"now": 0.0}
    for total in (6, 12):
        options = SessionOptions(total, tmp_path, save_every_steps=1, keep_every_seconds=30.0)
        with train.Session(options, clock=lambda: clock["now"]) as run:
            run.resume(job=Walk())
            for _ in run.steps():
                clock["now"] += 10
                run.report()
                run.save()
    found = survey(PosixDisk(), tmp_path)[0]
    assert [one.manifest.step for one in found if one.manifest.permanent] == [12, 9, 6, 3]


def test_the_directory_of_the_job_counts_more_than_the_scripts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_CHECKPOINT_DIR, str(tmp_path / "declared"))
    walk(tmp_path / "local", total=1)
    assert checkpoints(tmp_path / "declared") == [1]
    assert not (tmp_path / "local").exists()


def test_another_jobs_directory_is_refused_unless_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_NAMESPACE, "research")
    monkeypatch.setenv(names.ENV_JOB, "one")
    walk(tmp_path, total=2)
    monkeypatch.setenv(names.ENV_JOB, "two")
    with pytest.raises(train.DirectoryRefused, match="belongs to research/one"):
        walk(tmp_path, total=4)
    job, _ = walk(tmp_path, total=4, adopt=True)
    assert len(job.trail) == 4
    monkeypatch.setenv(names.ENV_JOB, "one")
    with pytest.raises(train.DirectoryRefused, match="belongs to research/two"):
        walk(tmp_path, total=4)


def test_two_processes_without_torch_distributed_are_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(train.ConfigurationError, match="init_process_group"):
        walk(None)


@pytest.mark.parametrize(
    "options",
    [
        {"total_steps": 0},
        {"keep": 0},
        {"save_every_seconds": -1.0},
        {"save_every_steps": 1, "save_every_seconds": 1.0},
    ],
)
def test_impossible_arguments_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(train.ConfigurationError, match=next(reversed(options))):
        train.session(**options)


def test_resume_twice_and_save_without_resume_are_refused(tmp_path: Path) -> None:
    with train.session(total_steps=1) as run:
        with pytest.raises(train.ConfigurationError, match="resume"):
            run.save()
        run.resume(job=Walk())
        with pytest.raises(train.ConfigurationError, match="once"):
            run.resume(job=Walk())


# Checkpoints of one's own.


def test_a_job_with_checkpoints_of_its_own_is_told_when(tmp_path: Path) -> None:
    saved = []
    with train.session(total_steps=9, save_every_steps=3) as run:
        for step in run.steps():
            run.report()
            if run.should_save():
                path = tmp_path / f"own-{step + 1}"
                path.write_text("weights")
                run.saved(step + 1, path)
                saved.append(step + 1)
    assert saved == [3, 6, 9]
    assert run.durable_step == 9


def test_a_job_with_checkpoints_of_its_own_leaves_after_it_has_saved(tmp_path: Path) -> None:
    with pytest.raises(train.Leave):
        with train.session(total_steps=9) as run:
            for step in run.steps():
                if step == 4:
                    raise_term()
                if run.should_save():
                    (tmp_path / "own").mkdir()
                    (tmp_path / "own" / "weights").write_text("w")
                    run.saved(run.step, tmp_path / "own")
    assert run.durable_step == run.step == 5


def test_a_checkpoint_that_is_not_there_is_no_checkpoint(tmp_path: Path) -> None:
    with train.session(total_steps=9) as run:
        with pytest.raises(FileNotFoundError):
            run.saved(1, tmp_path / "absent")
    assert run.durable_step is None


def test_a_job_without_checkpoints_leaves_at_once() -> None:
    with pytest.raises(train.Leave):
        with train.session(total_steps=50) as run:
            for step in run.steps():
                if step == 3:
                    raise_term()
                run.report()
    assert run.step == 4


def test_a_session_that_saves_by_itself_has_no_should_save(tmp_path: Path) -> None:
    with train.session(total_steps=1, checkpoint_dir=tmp_path) as run:
        run.resume(job=Walk())
        with pytest.raises(train.ConfigurationError, match="saves by itself"):
            run.should_save()


# Import.


def test_importing_brings_neither_torch_nor_numpy_nor_anything_else_of_ours() -> None:
    program = (
        "import sys; from clusterops import train; train.session; train.DataCursor; train.Leave\n"
        "ours = [m for m in sys.modules if m.startswith('clusterops.')]\n"
        "foreign = [m for m in ours if not m.startswith(('clusterops.train', 'clusterops.api'))]\n"
        "apis = [m for m in ours if m.startswith('clusterops.api.')]\n"
        "assert foreign == [], foreign\n"
        "assert set(apis) <= {'clusterops.api.names', 'clusterops.api.heartbeat'}, apis\n"
        "heavy = {'torch', 'numpy', 'http.client', 'ssl', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_public_name_resolves() -> None:
    for name in train.__all__:
        assert getattr(train, name) is not None
    assert dir(train) == train.__all__
    with pytest.raises(AttributeError):
        train.no_such_name  # noqa: B018
