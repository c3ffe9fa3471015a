"""A rollout generated once more."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import engine, mixed_requests, parameters, small_model

from rlhf.engine_replay import Recorded, compared, replay
from rlhf.generation import PlainEngine, drain

PROMPT = [5, 6, 7]


@pytest.fixture(scope="module")
def model():
    return small_model()


def test_any_rollout_of_a_busy_engine_comes_out_again_alone(model) -> None:
    paged = engine(model, block_size=4, blocks=14, headroom=0.0)
    asked = {}
    for name, prompt, wanted in mixed_requests(10, seed=7, greedy=False):
        asked[paged.submit(name, 0, prompt, wanted)] = (prompt, wanted)
    for result in drain(paged):
        prompt, wanted = asked[result.uid]
        recorded = Recorded(
            result.prompt_id, 0, prompt, result.tokens, result.logprobs, result.finish_reason
        )
        for again in (engine(model), PlainEngine(model)):
            outcome = replay(again, recorded, wanted)
            assert outcome.same, outcome.sentence
            assert outcome.first_difference is None


def recorded_of(model, wanted) -> Recorded:
    paged = engine(model)
    paged.submit("p", 0, PROMPT, wanted)
    (result,) = drain(paged)
    return Recorded("p", 0, PROMPT, result.tokens, result.logprobs, result.finish_reason)


def test_another_policy_another_prompt_or_another_seed_is_noticed(model) -> None:
    recorded = recorded_of(model, parameters(12, 3, 1.0))
    other_weights = replay(engine(small_model(3)), recorded, parameters(12, 3, 1.0))
    other_prompt = replay(engine(model), recorded._replace(prompt=[9]), parameters(12, 3, 1.0))
    other_seed = replay(engine(model), recorded, parameters(12, 4, 1.0))
    for outcome in (other_weights, other_prompt, other_seed):
        assert not outcome.same
        assert outcome.first_difference is not None
        assert "differ" in outcome.sentence


@pytest.mark.parametrize(
    ("tokens", "logprobs", "reason", "first", "words"),
    [
        ([1, 2, 3], [-1.0, -1.0, -1.0], "stop", None, "all 3 tokens are equal"),
        ([1, 2, 3], [-1.0, -1.5, -1.0], "stop", None, "log-probabilities differ by"),
        ([1, 2, 3], [-1.0, -1.0, -1.0], "length", None, "ended by 'length' and not by 'stop'"),
        ([4, 2, 3], [-9.0, -1.0, -1.0], "stop", 0, "the first token differs"),
        ([1, 2], [-1.0, -1.0], "length", 2, "2 tokens are equal"),
        ([1, 4, 3], [-1.0, -5.0, -1.0], "stop", 1, "rounding on other hardware"),
        ([1, 4, 3], [-1.4, -5.0, -1.0], "stop", 1, "the weights are others"),
    ],
)
def test_what_differs_is_said(tokens, logprobs, reason, first, words) -> None:
    recorded = Recorded("p", 0, [5], [1, 2, 3], [-1.0, -1.0, -1.0], "stop")
    outcome = compared(recorded, tokens, logprobs, reason, 1e-4)
    assert outcome.first_difference == first
    assert words in outcome.sentence
    assert outcome.same == words.startswith("all")


def test_tokens_alone_are_compared_where_no_logprobs_were_kept() -> None:
    recorded = Recorded("p", 0, [5], [1, 2], [], "stop")
    assert compared(recorded, [1, 2], [-1.0, -2.0], "stop", 1e-4).same


def test_an_engine_at_work_replays_nothing(model) -> None:
    paged = engine(model)
    paged.submit("q", 0, PROMPT, parameters(3))
    with pytest.raises(ValueError, match="replayed alone"):
        replay(paged, recorded_of(model, parameters(2)), parameters(2))
