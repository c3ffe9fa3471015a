"""Drift at the first step, made by a real engine and a real trainer, and called by its name."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import random

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import engine, parameters, rescored, small_model

from rlhf.engine_guard import Cause, Scored, chosen, judge
from rlhf.generation import Result, drain

TEMPERATURE = 0.6
PROMPTS = {str(number): [number + 4] * 12 for number in range(6)}


def sampled(paged, temperature: float = TEMPERATURE) -> list[Result]:
    for name, prompt in PROMPTS.items():
        paged.submit(name, 0, prompt, parameters(12, int(name), temperature))
    return drain(paged)


def rows_of(results: list[Result]) -> list[Scored]:
    return [Scored(one.prompt_id, one.logprobs, one.cached_tokens) for one in results]


def trainer_of(model, results: list[Result]):
    def rescore(temperature: float) -> list[list[float]]:
        return [rescored(model, PROMPTS[one.prompt_id], one.tokens, temperature) for one in results]

    return rescore


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def results(model):
    return sampled(engine(model))


def test_an_engine_that_is_right_is_let_pass(model, results) -> None:
    verdict = judge(rows_of(results), trainer_of(model, results), TEMPERATURE)
    assert (verdict.cause, verdict.stop, verdict.rows) == (Cause.NONE, False, [])
    assert verdict.drift < 1e-5
    assert verdict.tokens == sum(len(one.tokens) for one in results)


def test_logprobs_of_raw_logits_are_found_to_be_at_another_temperature(model, results) -> None:
    raw = trainer_of(model, results)(1.0)
    rows = [row._replace(logprobs=other) for row, other in zip(rows_of(results), raw, strict=True)]
    verdict = judge(rows, trainer_of(model, results), TEMPERATURE)
    assert verdict.cause is Cause.TEMPERATURE
    assert "temperature 1, the trainer's is 0.6" in verdict.sentence
    assert verdict.stop


def test_logprobs_divided_by_the_temperature_are_found(model, results) -> None:
    raw = trainer_of(model, results)(1.0)
    rows = [
        row._replace(logprobs=[one / TEMPERATURE for one in other])
        for row, other in zip(rows_of(results), raw, strict=True)
    ]
    assert judge(rows, trainer_of(model, results), TEMPERATURE).cause is Cause.SCALED_LOGPROBS


@pytest.mark.parametrize("by", [1, -1])
def test_a_shift_by_one_is_found(model, results, by) -> None:
    rows = [
        row._replace(logprobs=[*row.logprobs[by:], *row.logprobs[:by]]) for row in rows_of(results)
    ]
    assert judge(rows, trainer_of(model, results), TEMPERATURE).cause is Cause.SHIFTED


def test_logprobs_of_other_rows_are_found(model, results) -> None:
    rows = rows_of(results)
    mixed = [row._replace(logprobs=rows[number - 1].logprobs) for number, row in enumerate(rows)]
    assert judge(mixed, trainer_of(model, results), TEMPERATURE).cause is Cause.WRONG_ROW


def test_keys_of_older_weights_are_found() -> None:
    """Weights changed in place behind the engine's back: what it remembers is of the old ones."""
    model = small_model()
    paged = engine(model, block_size=4)
    sampled(paged)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(5)
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    paged.submit("fresh", 0, [33, 34], parameters(12, 1, TEMPERATURE))
    again = sampled(paged)
    PROMPTS["fresh"] = [33, 34]
    verdict = judge(rows_of(again), trainer_of(model, again), TEMPERATURE)
    del PROMPTS["fresh"]
    assert verdict.cause is Cause.STALE_KEYS
    assert "fresh" not in verdict.rows
    assert "only these" in verdict.sentence


def test_drift_without_a_known_cause_still_stops(model, results) -> None:
    chance = random.Random(0)
    rows = [
        row._replace(logprobs=[one + chance.uniform(-2, 2) for one in row.logprobs])
        for row in rows_of(results)
    ]
    verdict = judge(rows, trainer_of(model, results), TEMPERATURE)
    assert verdict.cause is Cause.UNKNOWN
    assert verdict.stop


def test_a_missing_logprob_or_one_that_is_no_number_is_drift(model, results) -> None:
    for spoilt in (lambda values: values[:-1], lambda values: [float("nan"), *values[1:]]):
        rows = rows_of(results)
        rows[0] = rows[0]._replace(logprobs=spoilt(rows[0].logprobs))
        verdict = judge(rows, trainer_of(model, results), TEMPERATURE)
        assert verdict.stop
        assert verdict.rows == ["0"]


def test_the_trainer_is_asked_once_when_all_is_well(model, results) -> None:
    asked = []
    rescore = trainer_of(model, results)

    def counted(temperature):
        asked.append(temperature)
        return rescore(temperature)

    judge(rows_of(results), counted, TEMPERATURE)
    assert asked == [TEMPERATURE]


def test_the_rows_scored_again_hold_the_share_asked_for_and_depend_on_the_seed_alone() -> None:
    names = [f"r{number}" for number in range(200)]
    lengths = [10 + number % 7 for number in range(200)]
    rows = chosen(names, lengths, 0.01, 3)
    held = sum(lengths[row] for row in rows)
    assert 0.01 * sum(lengths) <= held <= 0.01 * sum(lengths) + 16
    assert rows == chosen(names, lengths, 0.01, 3)
    assert rows != chosen(names, lengths, 0.01, 4)
    assert len(chosen(names[:2], lengths[:2], 0.0001, 3)) == 1
