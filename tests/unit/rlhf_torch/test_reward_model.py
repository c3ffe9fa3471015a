"""The learned reward: it finds the rule behind preferences, knows how sure it is, and grades."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import json
import math
import random

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from rlhf.graders.checking import answers_of
from rlhf.graders.protocol import Sample
from rlhf.identity import Envelope
from rlhf.reward_model import (
    Pair,
    RewardModel,
    RewardModelGrader,
    Settings,
    hold_back,
    measure,
    quality_of,
    read_pairs,
    train,
)
from rlhf.tasks.task import TaskInvalid

SMALL = Settings(
    width=16, layers=1, heads=2, context=48, steps=120, batch=16, lr=3e-3, held_back=0.25
)


def polite_pairs(count: int, seed: int = 0) -> list[Pair]:
    """People prefer answers that say please."""
    chance = random.Random(seed)
    pairs = []
    for number in range(count):
        topic = "".join(chance.choices("abcdefgh", k=5))
        pairs.append(Pair(f"ask {number}", f"{topic} please", f"{topic} now"))
    return pairs


@pytest.fixture(scope="module")
def trained():
    rest, held = hold_back(polite_pairs(80), SMALL.held_back)
    return train(rest, SMALL), held


def test_it_orders_pairs_it_has_not_seen(trained):
    model, held = trained
    quality = measure(model, held)
    assert quality.pairs == len(held) > 10
    assert quality.accuracy > 0.9
    assert quality.log_loss < 0.4 < math.log(2)
    untrained = measure(RewardModel(SMALL), held)
    assert untrained.accuracy == 0.5
    assert untrained.log_loss == pytest.approx(math.log(2), abs=1e-6)


def test_the_same_settings_give_the_same_weights():
    rest, held = hold_back(polite_pairs(40), 0.25)
    short = Settings(**(vars_of(SMALL) | {"steps": 3}))
    assert measure(train(rest, short), held) == measure(train(rest, short), held)


def vars_of(settings):
    return {name: getattr(settings, name) for name in settings.__slots__}


def test_no_prompt_is_on_both_sides():
    pairs = polite_pairs(60) + polite_pairs(60, seed=1)
    rest, held = hold_back(pairs, 0.3)
    assert len(rest) + len(held) == 120
    assert not {pair.prompt for pair in rest} & {pair.prompt for pair in held}


def test_calibration_by_hand():
    """Two pairs at 80 %, of which one is right; one at 99 % that is right; one tie."""
    logit = math.log(4)
    quality = quality_of(torch.tensor([logit, -logit, 4.6, 0.0]).double())
    assert quality.accuracy == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert [one.pairs for one in quality.bins] == [1, 2, 1]
    assert quality.bins[1].confidence == pytest.approx(0.8, abs=1e-6)
    assert quality.bins[1].accuracy == 0.5
    gap = (0 * 1 + 0.3 * 2 + (1 - 1 / (1 + math.exp(-4.6))) * 1) / 4
    assert quality.calibration_error == pytest.approx(gap, abs=1e-6)
    expected = sum(math.log1p(math.exp(-d)) for d in (logit, -logit, 4.6, 0.0)) / 4
    assert quality.log_loss == pytest.approx(expected)


async def test_saved_and_loaded_it_grades_each_sample_by_its_own_text(trained, tmp_path):
    model, held = trained
    model.save(tmp_path / "model", measure(model, held))
    report = json.loads((tmp_path / "model/quality.json").read_text())
    assert report["accuracy"] > 0.9
    grader = RewardModelGrader(tmp_path / "model")
    samples = [
        Sample(Envelope("run", seq, 0, seq, 1, 0, "p", "r"), [1], [2], "ask", text)
        for seq, text in enumerate(
            ["abc now", "abc please", "fgh now", "a much longer text please"]
        )
    ]
    answers = await answers_of(grader, samples)
    rewards = [answer.outcome.reward for answer in answers]
    alone = [grader.score(sample).reward for sample in samples]
    assert rewards == pytest.approx(alone, abs=1e-5)
    assert min(rewards[1], rewards[3]) > max(rewards[0], rewards[2])


def test_of_texts_beyond_the_context_the_end_decides(trained):
    """What people preferred lies at the end of texts three times as long as the context: it is learned
    there, and what was cut off counts for nothing. (A model of short texts alone has never seen a full
    context; nothing is promised of it there.)
    """
    chance = random.Random(5)
    pairs = [
        Pair("".join(chance.choices("abcdefgh ", k=chance.randrange(120, 160))), chosen, rejected)
        for _ in range(120)
        for chosen, rejected in [("so it is done please", "so it is done now.")]
    ]
    rest, held = hold_back(pairs, SMALL.held_back)
    model = train(rest, SMALL)
    assert min(len(pair.prompt) for pair in pairs) > 2 * SMALL.context
    assert measure(model, held).accuracy == 1.0
    with torch.no_grad():
        one, same, other = model.scores(
            [("x" * 500, "abc please"), ("x" * 700, "abc please"), ("x" * 500, "abc now")]
        ).tolist()
    assert one == same
    assert one > other


def test_what_was_cut_off_decides_nothing(trained):
    """Pairs that differ only before the context's reach are ties, also after training on them."""
    tail = "-" * SMALL.context
    pairs = [Pair(f"ask {number}", f"yes{tail}", f"no{tail}") for number in range(40)]
    rest, held = hold_back(pairs, SMALL.held_back)
    quality = measure(train(rest, Settings(**(vars_of(SMALL) | {"steps": 5}))), held)
    assert quality.accuracy == 0.5
    assert quality.log_loss == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "empty"),
        ('{"prompt": "a", "chosen": "b"}', "entry 1"),
        ('{"prompt": "a", "chosen": "b", "rejected": 3}', "entry 1"),
        ('{"prompt": "a", "chosen": "b", "rejected": "b"}', "the same"),
        ('{"prompt": "a", "chosen": "b", "rejected": "c"}\n{', "line 2"),
    ],
)
def test_files_that_hold_no_pairs_are_refused_with_the_line(tmp_path, content, told):
    path = tmp_path / "pairs.jsonl"
    path.write_text(content)
    with pytest.raises(TaskInvalid, match=told):
        read_pairs(path)


def test_too_few_prompts_to_hold_any_back_are_refused():
    with pytest.raises(TaskInvalid, match="held back"):
        hold_back(polite_pairs(1), 0.1)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(TaskInvalid, match="holds no reward model"):
        RewardModel.load(tmp_path)
