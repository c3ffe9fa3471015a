"""transformers' own continuous batching behind our interface: the contract, with the real library."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.kv_models import alone, mixed_requests, parameters, rescored
from support.rlhf_library_models import library_model

from rlhf.adapters.foreign import EngineDied
from rlhf.adapters.transformers_batching import TransformersEngine, connect
from rlhf.generation import PromptTooLong, Result

PROMPT = [5, 6, 7, 8]
BLOCKS, BLOCK = 24, 4


def drained(engine: TransformersEngine, wanted: int) -> list[Result]:
    """Results until so many are there; each step waits a little by itself."""
    results: list[Result] = []
    for _ in range(2000):
        results += engine.step()
        if len(results) >= wanted:
            assert not engine.step()
            return results
    raise AssertionError(f"{len(results)} of {wanted} results after 2000 steps")


@pytest.fixture
def model():
    return library_model()


@pytest.fixture
def connected(model):
    made: list[TransformersEngine] = []

    def connect_to(temperature: float = 0.0, **more) -> TransformersEngine:
        settings = {"blocks": BLOCKS, "block_size": BLOCK, "seats": 6, "budget": 64} | more
        made.append(connect(model, temperature=temperature, **settings))
        return made[-1]

    yield connect_to
    for engine in made:
        engine.close()


def test_greedy_tokens_and_logprobs_are_those_of_each_request_alone(model, connected) -> None:
    requests = mixed_requests(10, seed=3)
    engine = connected()
    uids = [engine.submit(name, 0, prompt, wanted) for name, prompt, wanted in requests]
    by_uid = {result.uid: result for result in drained(engine, len(uids))}
    for uid, expected in zip(uids, alone(model, requests), strict=True):
        found = by_uid[uid]
        assert (found.prompt_id, found.finish_reason) == (
            expected.prompt_id,
            expected.finish_reason,
        )
        assert found.tokens == expected.tokens
        assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


def test_logprobs_of_samples_are_those_at_the_sampling_temperature(model, connected) -> None:
    engine = connected(temperature=0.7)
    for number in range(4):
        engine.submit(str(number), 0, [*PROMPT, number], parameters(8, number, 0.7))
    for result in drained(engine, 4):
        prompt = [*PROMPT, int(result.prompt_id)]
        again = rescored(model, prompt, result.tokens, 0.7)
        assert result.logprobs == pytest.approx(again, abs=1e-4)


def test_new_weights_are_seen_also_by_a_prompt_that_was_read_with_the_old_ones(
    model, connected
) -> None:
    """With block sharing on it would go on with keys of the old weights."""
    engine = connected()
    long = [number % 30 + 4 for number in range(40)]
    asked = [("p", long, parameters(10))]
    answers = []
    for version in range(2):
        if version:
            engine.set_weights(1, library_model(seed=1).state_dict())
        engine.submit("p", version, long, parameters(10))
        (result,) = drained(engine, 1)
        assert result.versions == [version] * 10
        answers.append(result)
    for seed, found in enumerate(answers):
        (expected,) = alone(library_model(seed=seed), asked)
        assert found.tokens == expected.tokens
        assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    assert answers[0].tokens != answers[1].tokens


def test_what_is_aborted_ends_once_and_the_others_go_on(model, connected) -> None:
    engine = connected()
    gone = engine.submit("gone", 0, PROMPT, parameters(60))
    asked = [("stays", PROMPT, parameters(12))]
    engine.submit("stays", 0, PROMPT, parameters(12))
    engine.abort(gone)
    results = {one.prompt_id: one for one in drained(engine, 2)}
    assert results["gone"].finish_reason == "aborted"
    assert results["stays"].tokens == alone(model, asked)[0].tokens
    assert engine.stats().running == 0


def test_what_fills_the_whole_cache_finishes_and_one_token_more_is_refused(connected) -> None:
    engine = connected(blocks=8)
    with pytest.raises(PromptTooLong):
        engine.submit("p", 0, PROMPT, parameters(8 * BLOCK - len(PROMPT) + 1))
    engine.submit("p", 0, PROMPT, parameters(8 * BLOCK - len(PROMPT)))
    (result,) = drained(engine, 1)
    assert len(result.tokens) == 8 * BLOCK - len(PROMPT)


def test_preempted_requests_come_out_whole(model, connected) -> None:
    """Together they need more blocks than there are."""
    engine = connected(blocks=10, seats=4)
    asked = [(str(number), [number + 4] * 6, parameters(24)) for number in range(4)]
    for name, prompt, wanted in asked:
        engine.submit(name, 0, prompt, wanted)
    by_name = {one.prompt_id: one for one in drained(engine, 4)}
    for expected in alone(model, asked):
        assert by_name[expected.prompt_id].tokens == expected.tokens


def test_the_trainers_pass_is_the_same_while_the_engine_lives_and_after(model, connected) -> None:
    tokens = torch.tensor([[4, 5, 6, 7, 8, 9]])

    def passed():
        with torch.no_grad():
            return model(tokens).logits

    before = passed()
    engine = connected()
    engine.submit("p", 0, PROMPT, parameters(4))
    drained(engine, 1)
    assert torch.equal(passed(), before)
    engine.close()
    assert torch.equal(passed(), before)
    with pytest.raises(EngineDied):
        engine.set_weights(1, model.state_dict())
