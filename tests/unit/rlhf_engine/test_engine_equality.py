"""The paged engine comes to what each request comes to alone: tokens, log-probabilities, samples."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import random

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
from support.kv_models import (
    alone,
    engine,
    llama_like,
    mixed_requests,
    parameters,
    ran,
    rescored,
    small_model,
)

from rlhf.generation import drain

ROOMY = {"blocks": 400}
FEW_SEATS = {"blocks": 400, "seats": 3}
TINY = {"blocks": 11, "block_size": 4, "headroom": 0.0, "seats": 8}


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def requests():
    return mixed_requests(12)


@pytest.fixture(scope="module")
def expected(model, requests):
    return alone(model, requests)


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 16, 512])
@pytest.mark.parametrize("pool", [ROOMY, FEW_SEATS, TINY], ids=["roomy", "few seats", "tiny"])
def test_greedy_tokens_are_those_of_unbatched_generation(
    model, requests, expected, pool, chunk, prefix_cache
) -> None:
    paged = engine(model, chunk=chunk, prefix_cache=prefix_cache, budget=300, **pool)
    for temperature in ("cold", "warm"):
        results = ran(paged, requests)
        assert [one.tokens for one in results] == [one.tokens for one in expected], temperature
        assert [one.finish_reason for one in results] == [one.finish_reason for one in expected]
    work = paged.report().work
    assert (work.preemptions > 0) == (pool is TINY)
    assert (work.found > 0) == prefix_cache


@pytest.mark.parametrize("pool", [ROOMY, TINY], ids=["roomy", "tiny"])
def test_logprobs_are_those_of_a_rescoring_by_the_trainer(model, pool) -> None:
    requests = mixed_requests(12, seed=1, greedy=False)
    for result, (_, prompt, wanted) in zip(
        ran(engine(model, **pool), requests), requests, strict=True
    ):
        scored = rescored(model, prompt, result.tokens, wanted.temperature)
        assert len(result.tokens) == len(result.logprobs) == len(result.versions)
        assert result.logprobs == pytest.approx(scored, abs=1e-5)


def test_samples_are_the_same_under_any_order_seats_pool_chunks_and_neighbours(model) -> None:
    requests = mixed_requests(12, seed=2, greedy=False)
    expected = {result.prompt_id: result.tokens for result in alone(model, requests)}
    preempted = 0
    for number in range(5):
        chance = random.Random(number)
        shuffled = chance.sample(requests, len(requests))
        pool = chance.choice([ROOMY, FEW_SEATS, TINY, TINY])
        paged = engine(model, chunk=chance.choice([1, 5, 64]), **pool)
        uids = {}
        results = []
        for prompt_id, prompt, wanted in shuffled:
            uids[paged.submit(prompt_id, 0, prompt, wanted)] = prompt_id
            if chance.random() < 0.3:
                results += paged.step()
        results += drain(paged)
        preempted += paged.report().work.preemptions
        # Paired by what the results carry, whatever order they came in.
        assert {one.prompt_id: one.tokens for one in results} == expected
        assert all(uids[one.uid] == one.prompt_id for one in results)
    assert preempted > 0


def test_samples_of_one_prompt_differ_from_each_other_and_not_from_those_drawn_alone(model) -> None:
    prompt = [5, 6, 7, 8, 9, 10]
    wanted = [parameters(12, 77 + index, 1.0) for index in range(8)]
    paged = engine(model, block_size=4, blocks=200)
    for index, one in enumerate(wanted):
        paged.submit("p", index, prompt, one)
    results = drain(paged)
    single = [alone(model, [("p", prompt, one)])[0].tokens for one in wanted]
    assert [one.tokens for one in sorted(results, key=lambda one: one.sample_idx)] == single
    assert len({tuple(tokens) for tokens in single}) == 8
    work = paged.report().work
    assert work.computed == len(prompt) + sum(len(tokens) - 1 for tokens in single)
    assert [one.cached_tokens for one in results].count(len(prompt)) == 7


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_models_of_llamas_kin_come_to_the_same(family: str) -> None:
    model = llama_like(family)
    requests = mixed_requests(10)
    expected = alone(model, requests)
    for pool in (ROOMY, TINY):
        results = ran(engine(model, chunk=7, **pool), requests)
        assert [one.tokens for one in results] == [one.tokens for one in expected]
        for result, other in zip(results, expected, strict=True):
            assert result.logprobs == pytest.approx(other.logprobs, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_the_importance_ratio_of_a_first_step_is_one_at_any_temperature(model, temperature) -> None:
    paged = engine(model)
    prompt = [4, 5, 6]
    for index in range(4):
        paged.submit("p", index, prompt, parameters(20, index, temperature))
    for result in drain(paged):
        scored = rescored(model, prompt, result.tokens, temperature)
        assert result.logprobs == pytest.approx(scored, abs=1e-5)


def test_logprobs_are_those_of_the_whole_distribution_also_where_little_may_be_drawn(model) -> None:
    prompt = [4, 5, 6]
    wanted = parameters(
        20, 3, 0.8, top_k=3, logit_bias=((7, 4.0), (8, -90.0)), min_new_tokens=5, stop_tokens=(7,)
    )
    paged = engine(model)
    paged.submit("p", 0, prompt, wanted)
    (result,) = drain(paged)
    assert result.logprobs == pytest.approx(rescored(model, prompt, result.tokens, 0.8), abs=1e-5)
    assert 7 not in result.tokens[:5]
    assert 8 not in result.tokens
