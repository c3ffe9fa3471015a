"""From a configuration to task, grader and audit: composites by name, and what is told beforehand."""

import json
import signal
import sys

import pytest
from support.rlhf_samples import sample
from support.rlhf_torch_small import small_config

from rlhf import building, train
from rlhf.graders.checking import answers_of
from rlhf.graders.functions import BadFunction
from rlhf.model.building import build
from rlhf.model.huggingface import ModelUnavailable
from rlhf.tasks.task import TaskInvalid

REVERSED = sample(3, prompt="123=", response="321")


@pytest.fixture
def rewards(tmp_path, monkeypatch):
    """A module of the user's with a reward function."""
    (tmp_path / "their_rewards.py").write_text(
        "def brief(prompt, response): return 1.0 / len(response)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "their_rewards:brief"
    sys.modules.pop("their_rewards", None)


def composite(rewards: str, *words: str):
    return small_config(
        "grader.kind=composite",
        "grader.parts.right.weight=3",
        "grader.parts.brief.kind=function",
        f"grader.parts.brief.function={rewards}",
        *words,
    )


async def test_parts_named_in_the_configuration_are_one_reward_and_all_are_reported(rewards):
    config = composite(rewards, "grader.parts.brief.pure=true")
    grader = building.grader(config, building.task(config))
    (answer,) = await answers_of(grader, [REVERSED])
    assert answer.outcome.parts == pytest.approx({"right": 1.0, "brief": 1 / 3})
    assert answer.outcome.reward == pytest.approx((3 * 1.0 + 1 / 3) / 4)
    audit = building.audit(config, building.task(config))
    assert audit is not None
    assert audit.score(REVERSED) == answer.outcome
    await grader.close()


async def test_below_its_floor_a_part_caps_the_reward(rewards):
    config = composite(rewards, "grader.parts.brief.floor=0.5")
    grader = building.grader(config, building.task(config))
    (answer,) = await answers_of(grader, [REVERSED])
    assert answer.outcome.reward == pytest.approx(1 / 3)


def test_with_a_part_that_is_not_pure_there_is_no_audit(rewards):
    config = composite(rewards)
    assert building.audit(config, building.task(config)) is None


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def make(): return None", "made NoneType, which is no grader: it has no grade"),
        ("def make(needed): return needed", "it is called without arguments"),
        ("def make(): raise OSError('no key')", "made no grader: OSError: no key"),
    ],
)
def test_what_makes_no_grader_is_refused_before_the_run(tmp_path, monkeypatch, source, told):
    (tmp_path / "their_grader.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_grader", raising=False)
    config = small_config("grader.kind=custom", "grader.function=their_grader:make")
    with pytest.raises(BadFunction, match=told):
        building.grader(config, building.task(config))
    sys.modules.pop("their_grader", None)


@pytest.mark.parametrize("device", ["nosuch", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_by_name(device):
    with pytest.raises(ModelUnavailable, match=f"model.device={device} can't be used here"):
        build(small_config(f"model.device={device}").model, 16, 0)


def test_a_task_whose_answer_cannot_fit_is_refused():
    with pytest.raises(TaskInvalid, match="no room for 5 digits"):
        building.task(small_config("task.digits=5"))


def test_fewer_prompts_than_a_batch_wants_are_told(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{n}"}) + "\n" for n in range(6)))
    words = ("task.name=jsonl", f"task.prompts={path}", "grader.kind=helpful-harmless", "steps=3")
    config = small_config(*words)
    told = " ".join(building.notes(config, building.task(config)))
    assert "6 prompts, each met 8 times in 3 steps" in told
    assert "a batch holds 16 prompts and there are only 6" in told
    grouped = small_config(*words, "rollout.group=4")
    assert len(building.notes(grouped, building.task(grouped))) == 1
    assert building.notes(small_config(), building.task(small_config())) == []


def test_ctrl_c_asks_to_save_and_leave_and_the_second_one_leaves_at_once():
    asked: list[int] = []
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
        train._interrupted(signal.SIGINT, None)
        assert asked == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with pytest.raises(KeyboardInterrupt):
            train._interrupted(signal.SIGINT, None)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
