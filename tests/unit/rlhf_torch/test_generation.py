"""The plain engine: the model's own distribution, independent of neighbours, in order of nothing."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

from dataclasses import replace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_toys import VOCABULARY, small_model

from rlhf.generation import PlainEngine, PromptTooLong, drain
from rlhf.model.policy import evaluate, pack
from rlhf.sampling import Parameters, allowed_tokens, draw, uniforms

PROMPTS = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [2, 2], [3, 1, 4, 1]]
PARAMETERS = Parameters(max_new_tokens=9, seed=0, temperature=0.8, stop_tokens=(10,))


def requests(**changes):
    return [
        (f"p{index}", 0, prompt, replace(PARAMETERS, seed=1000 + index, **changes))
        for index, prompt in enumerate(PROMPTS)
    ]


def run(engine, wanted):
    for one in wanted:
        engine.submit(*one)
    return {result.prompt_id: result for result in drain(engine)}


def test_greedy_equals_the_argmax_of_a_full_forward_pass_each_time():
    model = small_model()
    found = run(PlainEngine(model), requests(temperature=0.0, stop_tokens=()))
    for index, prompt in enumerate(PROMPTS):
        tokens = list(prompt)
        for _ in range(PARAMETERS.max_new_tokens):
            with torch.no_grad():
                tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        assert found[f"p{index}"].tokens == tokens[len(prompt) :]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_log_probabilities_are_those_that_training_computes(temperature):
    model = small_model()
    found = run(PlainEngine(model), requests(temperature=temperature))
    results = [found[f"p{index}"] for index in range(len(PROMPTS))]
    packed = pack(PROMPTS, [result.tokens for result in results], PARAMETERS.max_new_tokens)
    with torch.no_grad():
        again = evaluate(model, packed, temperature).logprobs
    for row, result in enumerate(results):
        assert len(result.tokens) == len(result.logprobs) == len(result.versions)
        assert again[row, : len(result.tokens)].tolist() == pytest.approx(result.logprobs, abs=1e-5)


def test_a_response_does_not_depend_on_order_or_neighbours():
    together = run(PlainEngine(small_model()), requests())
    reversed_order = run(PlainEngine(small_model()), requests()[::-1])
    alone = {}
    for one in requests():
        alone |= run(PlainEngine(small_model()), [one])
    tokens = {name: result.tokens for name, result in together.items()}
    assert {name: result.tokens for name, result in reversed_order.items()} == tokens
    assert {name: result.tokens for name, result in alone.items()} == tokens


def test_samples_of_one_prompt_differ_by_seed_and_repeat_by_seed():
    engine = PlainEngine(small_model())
    for index in range(4):
        engine.submit("same", index, [1, 2], replace(PARAMETERS, seed=index, max_new_tokens=12))
    engine.submit("same", 9, [1, 2], replace(PARAMETERS, seed=0, max_new_tokens=12))
    results = {result.sample_idx: result.tokens for result in drain(engine)}
    assert results[9] == results[0]
    assert len({tuple(results[index]) for index in range(4)}) == 4


def test_a_stop_token_ends_a_response_once_also_on_the_last_place():
    free = run(PlainEngine(small_model()), requests(stop_tokens=())).values()
    # One that some responses reach and others do not, whatever the weights are.
    stop = next(
        token
        for token in range(VOCABULARY)
        if 0 < sum(token in result.tokens for result in free) < len(free)
    )
    found = run(PlainEngine(small_model()), requests(stop_tokens=(stop,)))
    assert {result.finish_reason for result in found.values()} == {"stop", "length"}
    for result in found.values():
        assert result.tokens.count(stop) == (1 if result.finish_reason == "stop" else 0)
    stopped = next(result for result in found.values() if result.finish_reason == "stop")
    index = int(stopped.prompt_id[1:])
    exact = replace(
        PARAMETERS, seed=1000 + index, max_new_tokens=len(stopped.tokens), stop_tokens=(stop,)
    )
    again = run(PlainEngine(small_model()), [("p", 0, PROMPTS[index], exact)])["p"]
    assert (again.tokens, again.finish_reason) == (stopped.tokens, "stop")


def test_no_stop_token_before_the_minimum():
    found = run(PlainEngine(small_model()), requests(min_new_tokens=9))
    assert all(10 not in result.tokens[:9] for result in found.values())


def test_what_never_fits_is_refused_and_the_others_go_on():
    engine = PlainEngine(small_model())
    with pytest.raises(PromptTooLong, match="long"):
        engine.submit("long", 0, [1] * 24, PARAMETERS)
    with pytest.raises(PromptTooLong):
        engine.submit("empty", 0, [], PARAMETERS)
    engine.submit("fits", 0, [1] * 23, PARAMETERS)
    assert [result.prompt_id for result in drain(engine)] == ["fits"]


def test_an_aborted_request_ends_once_waiting_or_running():
    engine = PlainEngine(small_model())
    waiting = engine.submit("waiting", 0, [1], PARAMETERS)
    engine.submit("other", 0, [1], replace(PARAMETERS, stop_tokens=()))
    engine.abort(waiting)
    engine.abort(999)
    first = engine.step()
    assert [(result.prompt_id, result.finish_reason) for result in first] == [
        ("waiting", "aborted")
    ]
    engine.abort(1)
    rest = drain(engine)
    assert [(result.prompt_id, result.finish_reason) for result in rest] == [("other", "aborted")]
    assert engine.stats().running == engine.stats().waiting == 0


def test_new_weights_in_the_middle_go_on_from_the_tokens_not_from_old_keys():
    old, new = small_model(0), small_model(1)
    engine = PlainEngine(old)
    engine.submit("p", 0, [1, 2, 3], replace(PARAMETERS, temperature=0.0, stop_tokens=()))
    for _ in range(4):
        engine.step()
    engine.set_weights(7, new.state_dict())
    (result,) = drain(engine)
    assert result.versions == [0] * 4 + [7] * 5
    expected = [1, 2, 3, *result.tokens[:4]]
    for _ in range(5):
        with torch.no_grad():
            expected.append(int(new(torch.tensor([expected])).logits[0, -1].argmax()))
    assert result.tokens == expected[3:]


def test_sampled_tokens_follow_the_distribution():
    logprobs = torch.log_softmax(torch.tensor([[0.0, 1.0, -1.0, 0.5]]), dim=-1)
    count = 20_000
    numbers = uniforms(list(range(count)), [3] * count)
    rows = logprobs.expand(count, -1)
    chosen = draw(rows, torch.ones_like(rows, dtype=torch.bool), numbers, [1.0] * count)
    share = torch.bincount(chosen, minlength=4) / count
    assert share.tolist() == pytest.approx(logprobs[0].exp().tolist(), abs=0.015)


def test_numbers_are_spread_evenly_and_unlike_between_places_and_seeds():
    numbers = uniforms([7] * 4000, list(range(4000)))
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(numbers.std()) == pytest.approx(12**-0.5, abs=0.01)
    shifted = uniforms([8] * 4000, list(range(4000)))
    together = torch.corrcoef(torch.stack((numbers, shifted)))
    assert abs(float(together[0, 1])) < 0.06
    assert float(numbers.max()) < 1


def test_top_k_and_top_p_leave_the_likeliest():
    logprobs = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for change, expected in (
        ({"top_k": 2}, [True, True, False, False]),
        ({"top_p": 0.79}, [True, True, False, False]),
        ({"top_p": 0.81}, [True, True, True, False]),
        ({"top_p": 1e-9}, [True, False, False, False]),
        ({"top_p": 1e-300}, [True, False, False, False]),
        ({"top_k": 3, "top_p": 0.5}, [True, False, False, False]),
        ({"min_new_tokens": 1, "stop_tokens": (0,), "top_k": 1}, [False, True, False, False]),
    ):
        allowed = allowed_tokens(logprobs, [Parameters(1, 0, **change)], [0])
        assert allowed[0].tolist() == expected, change


def test_a_token_that_is_not_allowed_is_never_drawn_even_at_the_edge():
    logprobs = torch.log_softmax(torch.zeros(1, 4), dim=-1)
    allowed = torch.tensor([[False, True, True, False]])
    for number in (0.0, 0.5, 1 - 2**-53):
        chosen = draw(logprobs, allowed, torch.tensor([number], dtype=torch.float64), [1.0])
        assert chosen.item() in (1, 2)


@pytest.mark.parametrize(
    "wrong", [{"max_new_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}]
)
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match="max_new_tokens"):
        Parameters(**({"max_new_tokens": 3, "seed": 0} | wrong))


def test_results_carry_who_they_are():
    engine = PlainEngine(small_model(), version=4)
    uid = engine.submit("who", 3, [1], PARAMETERS)
    (result,) = drain(engine)
    assert (result.uid, result.prompt_id, result.sample_idx) == (uid, "who", 3)
    assert set(result.versions) == {4}
    assert max(result.tokens) < VOCABULARY
