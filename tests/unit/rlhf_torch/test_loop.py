"""The two loops: what follows what, and what they refuse; how a run is shown; who else is told."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import io
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from rlhf import loop
from rlhf.config.resolve import ConfigurationInvalid, resolve
from rlhf.progress_display import Display
from rlhf.reward_queue_types import Batch
from rlhf.run_folder import RunFolder
from rlhf.trackers import trackers
from rlhf.trainer import Updated


class Told:
    """Plays all the parts and writes down what it is asked for."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def update(self, batch):
        self.heard.append(("update", batch.number))
        return Updated({}, [])

    def trained(self, batch):
        self.heard.append(("trained", batch.number))

    def publish(self, version):
        self.heard.append(("publish", version))

    def record(self, step, _batch, _updated):
        self.heard.append(("record", step))


def steps(lag: int, count: int = 3):
    return ((k, Batch(k, max(0, k - lag), [], "")) for k in range(count))


def test_in_turn_the_next_batch_waits_for_the_weights_of_this_one():
    told = Told()
    loop.synchronous(steps(0, 2), told, told, told.publish, told.record)
    one_step = [("update", 0), ("publish", 1), ("trained", 0), ("record", 0)]
    assert told.heard == [*one_step, ("update", 1), ("publish", 2), ("trained", 1), ("record", 1)]


def test_overlapped_the_weights_are_there_before_anybody_may_ask_for_them():
    told = Told()
    loop.asynchronous(steps(2), told, told, told.publish, told.record, 2)
    for step in range(3):
        published, trained = (
            told.heard.index(one) for one in (("publish", step + 1), ("trained", step))
        )
        assert published < trained


def test_a_batch_of_another_policy_version_than_its_own_is_refused():
    told = Told()
    with pytest.raises(AssertionError):
        loop.synchronous(steps(1), told, told, told.publish, told.record)
    with pytest.raises(AssertionError):
        loop.asynchronous(steps(0), told, told, told.publish, told.record, 1)
    assert ("update", 2) not in told.heard


METRICS = {
    "objective/scores": 0.5,
    "objective/scores/helpfulness": 0.25,
    "objective/kl": 1.5,
    "perf/tokens_per_second": 1234.0,
    "queue/depth": 32.0,
    "staleness/versions": 1.0,
}


def test_off_a_terminal_a_run_is_plain_lines_not_too_many(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    display = Display(100, live=False)
    with display.shown():
        for step in range(100):
            display.step(step, METRICS)
    lines = output.getvalue().splitlines()
    assert 25 <= len(lines) <= 40
    assert lines[-1].startswith("step 100/100  score 0.500 (helpfulness 0.250)  KL 1.500")
    assert "1234 tokens/s" in lines[-1]
    assert "left 0:00" in lines[-1]
    assert "\x1b" not in output.getvalue()


def test_in_a_terminal_a_run_is_a_panel(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    display = Display(3, live=True)
    with display.shown():
        display.say("warm-up done [not markup]")
        for step in range(3):
            display.step(step, METRICS)
    assert "step 3/3" in output.getvalue()
    assert "[not markup]" in output.getvalue()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_named(monkeypatch, tmp_path, name):
    for module in ("torch.utils.tensorboard", "wandb", "trackio"):
        monkeypatch.setitem(sys.modules, module, None)
    config = resolve(None, [f"reports.{name}=true"]).config
    with pytest.raises(ConfigurationInvalid, match=f"pip install {name}"):
        trackers(config, RunFolder(tmp_path), "run-12345678")


def test_a_tracker_is_told_every_metric_and_closed(monkeypatch, tmp_path):
    class Library:
        heard: list[Any] = []  # noqa: RUF012 - one for the whole stand-in

        def init(self, **settings):
            self.heard.append(settings["name"])

        def log(self, metrics, step):
            self.heard.append((step, metrics))

        def finish(self):
            self.heard.append("finished")

    monkeypatch.setitem(sys.modules, "wandb", Library())
    config = resolve(None, ["reports.wandb=true"]).config
    (tracker,) = trackers(config, RunFolder(tmp_path), "rlhf-12345678")
    tracker.log(3, METRICS)
    tracker.close()
    assert Library.heard == ["rlhf-12345678", (3, METRICS), "finished"]
