"""The warm-up: imitates the responses only, goes on where it was, ends once."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import itertools

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_small import small_config

from rlhf import building
from rlhf.model.building import build
from rlhf.warm_up import WarmUp, _laid_out


def made(*words):
    config = small_config("warm_up.steps=12", "warm_up.batch=8", *words)
    task = building.task(config)
    model = build(config.model, task.vocabulary.size, config.seed)
    return model, WarmUp(model, task, config)


def flat(model):
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def test_it_lowers_the_loss_on_demonstrations():
    model, warm_up = made("warm_up.steps=60", "warm_up.lr=1e-2")
    first = warm_up._step(0)
    assert warm_up.run() < first - 0.3
    assert warm_up.finished
    assert warm_up.run() == 0.0
    assert model is not None


def test_interrupted_and_resumed_it_ends_with_the_same_weights():
    class Told(Exception):
        pass

    undisturbed, warm_up = made()
    warm_up.run()

    model, warm_up = made()

    def leave():
        if warm_up.done == 7:
            raise Told

    with pytest.raises(Told):
        warm_up.run(leave)
    saved, weights = warm_up.state_dict(), model.state_dict()
    later, again = made()
    later.load_state_dict(weights)
    again.load_state_dict(saved)
    assert again.done == 7
    again.run()
    assert torch.equal(flat(later), flat(undisturbed))


def test_nobody_is_asked_after_the_last_step():
    _, warm_up = made()
    seen: list[int] = []
    warm_up.run(lambda: seen.append(warm_up.done))
    assert seen == list(range(1, 12))


def test_targets_count_on_the_response_alone():
    task = building.task(small_config())
    batch = list(itertools.islice(task.demonstrations(0), 3))
    tokens, targets = _laid_out(batch, 16, torch.device("cpu"))
    for row, one in enumerate(batch):
        counted = targets[row][targets[row] >= 0].tolist()
        assert counted == list(one.response)
        first = len(one.prompt) - 1
        assert targets[row, :first].eq(-100).all()
        assert tokens[row, : first + 1].tolist() == list(one.prompt)


def test_a_task_without_demonstrations_has_nothing_to_warm_up(tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    config = small_config(
        "task.name=jsonl",
        f"task.prompts={tmp_path / 'prompts.jsonl'}",
        "grader.kind=helpful-harmless",
        "warm_up.steps=10",
    )
    task = building.task(config)
    assert WarmUp(build(config.model, task.vocabulary.size, 0), task, config).finished
