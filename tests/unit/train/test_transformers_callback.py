"""The callback under a stand-in for the Trainer: the same calls in the same order."""
# ruff: noqa: PT012

import os
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from clusterops import train
from clusterops.train import transformers_callback


class Trainer:
    """Calls as Hugging Face's Trainer does: step end, then save when asked, then stop when asked."""

    def __init__(self, folder: Path, steps: int, callback: Any, term_at: int | None = None) -> None:
        self.args = SimpleNamespace(output_dir=str(folder))
        self.state = SimpleNamespace(global_step=0)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)
        self.steps, self.callback, self.term_at = steps, callback, term_at

    def _call(self, event: str, **options: Any) -> None:
        getattr(self.callback, event)(self.args, self.state, self.control, model=None, **options)

    def train(self, resume_from: str | None) -> None:
        if resume_from is not None:
            self.state.global_step = int(resume_from.rpartition("-")[2])
        self._call("on_train_begin")
        while self.state.global_step < self.steps and not self.control.should_training_stop:
            self.state.global_step += 1
            if self.state.global_step == self.term_at:
                os.kill(os.getpid(), signal.SIGTERM)
            self._call("on_step_end")
            self._call("on_log", logs={"loss": 1.0 / self.state.global_step})
            if self.control.should_save:
                self.control.should_save = False
                folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
                folder.mkdir(parents=True)
                (folder / "model.safetensors").write_text("weights")
                (folder / "trainer_state.json").write_text("{}")
                self._call("on_save")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("transformers")
    module.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)


def run_trainer(folder: Path, term_at: int | None = None) -> train.Session:
    with train.session(total_steps=10, save_every_steps=4) as run:
        trainer = Trainer(folder, 10, transformers_callback.callback(run), term_at)
        trainer.train(transformers_callback.newest(folder))
    return run


def saved(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_the_trainer_saves_when_the_session_says_so(tmp_path: Path) -> None:
    run = run_trainer(tmp_path)
    assert saved(tmp_path) == ["checkpoint-4", "checkpoint-8"]
    assert run.durable_step == 8
    assert run.finished
    assert run.metrics["loss"] == 0.1


def test_on_notice_the_trainer_saves_stops_and_the_job_leaves(tmp_path: Path) -> None:
    with pytest.raises(train.Leave):
        run_trainer(tmp_path, term_at=6)
    assert saved(tmp_path) == ["checkpoint-4", "checkpoint-6"]
    run = run_trainer(tmp_path)
    assert run.step == 10
    assert saved(tmp_path) == ["checkpoint-10", "checkpoint-4", "checkpoint-6"]


def test_an_unfinished_checkpoint_is_not_resumed_from(tmp_path: Path) -> None:
    assert transformers_callback.newest(tmp_path / "absent") is None
    with pytest.raises(train.Leave):
        run_trainer(tmp_path, term_at=6)
    (tmp_path / "checkpoint-99").mkdir()
    (tmp_path / "checkpoint-x").mkdir()
    assert transformers_callback.newest(tmp_path) == str(tmp_path / "checkpoint-6")


def test_a_trainer_that_resumes_and_trains_nothing_fails(tmp_path: Path) -> None:
    run_trainer(tmp_path)
    (tmp_path / "checkpoint-8" / "trainer_state.json").write_text("{}")
    with pytest.raises(train.NothingTrained):
        with train.session(total_steps=20) as run:
            trainer = Trainer(tmp_path, 8, transformers_callback.callback(run))
            trainer.train(transformers_callback.newest(tmp_path))


def test_without_transformers_the_import_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with train.session(total_steps=1) as run, pytest.raises(ImportError, match="transformers"):
        transformers_callback.callback(run)
