"""The engine's promises besides equality: what is refused, how requests end, what new weights do."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

from itertools import count

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from support.kv_models import (
    VOCABULARY,
    alone,
    engine,
    mixed_requests,
    parameters,
    ran,
    rescored,
    small_model,
)

from rlhf.engine import PagedEngine
from rlhf.engine_requests import DuplicateSample, InvalidRequest, QueueFull
from rlhf.engine_settings import Settings
from rlhf.engine_updates import OnUpdate, WeightsMismatch
from rlhf.generation import Engine, PromptTooLong, drain
from rlhf.identity import digests
from rlhf.model.decoder import Decoder

PROMPT = [5, 6, 7, 8, 9]


def letters(ids) -> str:
    """Ids as letters, where ids from 30 on have none."""
    return "".join(chr(ord("a") + one) if one < 26 else "-" for one in ids if one < 30)


@pytest.fixture(scope="module")
def model() -> Decoder:
    return small_model()


def other_state(seed: int = 9) -> dict[str, torch.Tensor]:
    return dict(small_model(seed).state_dict())


def test_it_is_an_engine_as_the_pipeline_knows_it(model) -> None:
    paged: Engine = engine(model)
    uid = paged.submit("p", 3, PROMPT, parameters(4))
    (result,) = drain(paged)
    assert (result.uid, result.prompt_id, result.sample_idx) == (uid, "p", 3)
    assert paged.stats()._replace(version=0) == (0, 0, 1, 4, 0)


# ---- what is refused


@pytest.mark.parametrize(
    ("prompt", "new", "error"),
    [
        ([], 4, InvalidRequest),
        ([VOCABULARY], 4, InvalidRequest),
        ([-1], 4, InvalidRequest),
        ([1] * 90, 7, PromptTooLong),
        ([1] * 30, 4, PromptTooLong),
    ],
    ids=["empty", "unknown id", "negative id", "above the context", "above the pool"],
)
def test_a_request_that_cannot_be_served_is_refused_and_the_others_go_on(
    model, prompt, new, error
) -> None:
    paged = engine(model, blocks=4, block_size=8)
    paged.submit("good", 0, PROMPT, parameters(4))
    with pytest.raises(error, match=r"good|bad"):
        paged.submit("bad", 0, prompt, parameters(new))
    assert [one.prompt_id for one in drain(paged)] == ["good"]
    paged.submit("bad", 0, PROMPT, parameters(1))


def test_no_tokens_at_all_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="max_new_tokens >= 1"):
        parameters(0)


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("new", [1, 2])
def test_prompts_around_the_border_of_a_block(model, length, new) -> None:
    request = [("p", [one % VOCABULARY for one in range(length)], parameters(new))]
    paged = engine(model, blocks=-(-(length + new - 1) // 16))
    for _ in range(2):
        assert ran(paged, request)[0].tokens == alone(model, request)[0].tokens


def test_a_sample_that_is_under_way_is_not_taken_twice(model) -> None:
    paged = engine(model)
    paged.submit("p", 0, PROMPT, parameters(3))
    with pytest.raises(DuplicateSample, match="sample 0 of prompt 'p'"):
        paged.submit("p", 0, PROMPT, parameters(3))
    paged.submit("p", 1, PROMPT, parameters(3))
    assert len(drain(paged)) == 2
    paged.submit("p", 0, PROMPT, parameters(3))


def test_more_than_may_wait_are_refused(model) -> None:
    paged = engine(model, max_waiting=3)
    for number in range(3):
        paged.submit(str(number), 0, PROMPT, parameters(3))
    with pytest.raises(QueueFull, match="3 requests wait"):
        paged.submit("x", 0, PROMPT, parameters(3))
    paged.step()
    paged.submit("x", 0, PROMPT, parameters(3))
    assert len(drain(paged)) == 4


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"stop_strings": ("x",)}, "knows the vocabulary"),
        ({"logit_bias": ((VOCABULARY, 1.0),)}, "logit_bias"),
    ],
)
def test_parameters_that_this_engine_cannot_honour_are_refused(model, more, message) -> None:
    with pytest.raises(InvalidRequest, match=message):
        engine(model).submit("p", 0, PROMPT, parameters(3, **more))


@pytest.mark.parametrize(
    "more",
    [
        {"stop_strings": ("",)},
        {"stop_strings": tuple("abcdefghijklmnopq")},
        {"top_logprobs": 21},
        {"min_new_tokens": 5},
        {"top_p": 0.0},
    ],
)
def test_parameters_that_make_no_sense_are_refused(more) -> None:
    with pytest.raises(ValueError, match=r"at most|is 0 to|is above|top_p"):
        parameters(4, **more)


# ---- ends


def test_a_stop_token_ends_a_response_and_is_in_it_once(model) -> None:
    free = alone(model, [("p", PROMPT, parameters(20))])[0].tokens
    stop = free[4]
    cut = free.index(stop) + 1
    paged = engine(model)
    paged.submit("p", 0, PROMPT, parameters(20, stop_tokens=(stop,)))
    paged.submit("q", 0, PROMPT, parameters(cut, stop_tokens=(stop,)))
    results = drain(paged)
    assert [one.tokens for one in results] == [free[:cut]] * 2
    assert [one.finish_reason for one in results] == ["stop", "stop"]


def test_no_stop_token_comes_before_the_minimum_length(model) -> None:
    free = alone(model, [("p", PROMPT, parameters(20))])[0].tokens
    paged = engine(model)
    wanted = parameters(20, stop_tokens=(free[0],), min_new_tokens=6)
    paged.submit("p", 0, PROMPT, wanted)
    (result,) = drain(paged)
    assert free[0] not in result.tokens[:6]
    assert len(result.tokens) >= 6


def test_a_stop_string_ends_the_text_before_it_and_the_tokens_with_it(model) -> None:
    free = alone(model, [("p", PROMPT, parameters(20))])[0].tokens
    text = letters(free)
    paged = engine(model, decode=letters)
    paged.submit("p", 0, PROMPT, parameters(20, stop_strings=("zzz", text[5:8])))
    ended = []
    streamed = ""
    while paged.stats().running or paged.stats().waiting:
        step = paged.advance()
        streamed += "".join(token.text for token in step.tokens)
        ended += step.ended
    (completion,) = ended
    at = text.index(text[5:8])
    assert completion.text == text[:at] == streamed
    assert completion.result.finish_reason == "stop"
    assert letters(completion.result.tokens) == text[: at + 3]
    paged.audit()
    assert paged.report().memory.reserved == 0


def test_an_abort_ends_once_with_what_there_is_and_unknown_ones_are_ignored(model) -> None:
    paged = engine(model, seats=2)
    uids = [paged.submit(str(number), 0, PROMPT, parameters(9)) for number in range(3)]
    paged.step()
    paged.step()
    for uid in (uids[0], uids[0], uids[2], 12345):
        paged.abort(uid)
    aborted = [one for one in paged.step() if one.finish_reason == "aborted"]
    assert [(one.uid, len(one.tokens)) for one in aborted] == [(uids[0], 2), (uids[2], 0)]
    paged.abort(uids[0])
    assert [(one.uid, one.finish_reason) for one in drain(paged)] == [(uids[1], "length")]
    assert paged.report().memory.reserved == 0


def test_an_abort_after_the_finishing_step_is_too_late(model) -> None:
    paged = engine(model)
    uid = paged.submit("p", 0, PROMPT, parameters(1))
    assert [one.finish_reason for one in paged.step()] == ["length"]
    paged.abort(uid)
    assert paged.step() == []


def test_numbers_that_are_none_fail_their_request_and_no_other(model) -> None:
    """A token whose embedding is NaN poisons the sequences that contain it, and nothing they leave."""
    broken = small_model()
    with torch.no_grad():
        broken.embed_tokens.weight[39] = torch.nan
        # The tied output would make every row NaN: that one's logit is set apart.
    paged = engine(broken, blocks=6, block_size=4)
    paged._computation.architecture.__dict__["head"] = lambda hidden: torch.nan_to_num(
        hidden @ broken.embed_tokens.weight.nan_to_num().T, nan=torch.nan
    )
    paged.submit("bad", 0, [39, 5, 6], parameters(8))
    paged.submit("good", 0, PROMPT, parameters(8))
    results = {one.prompt_id: one for one in drain(paged)}
    assert (results["bad"].finish_reason, results["bad"].tokens) == ("failed", [])
    assert results["good"].finish_reason == "length"
    # Its blocks are used again by others, and its prefix by nobody.
    paged.submit("later", 0, PROMPT + PROMPT + PROMPT, parameters(8))
    (later,) = drain(paged)
    assert later.finish_reason == "length"
    assert len(later.tokens) == 8


def test_a_step_that_fails_leaves_an_engine_that_goes_on(model) -> None:
    paged = engine(model, block_size=4)
    for number in range(3):
        paged.submit("p", number, PROMPT, parameters(6, number, 1.0))
    paged.step()
    computation, broken = paged._computation._forward, RuntimeError("out of memory")

    class Failing:
        def logits(self, _batch):
            raise broken

    paged._computation._forward = Failing()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="out of memory"):
        paged.step()
    paged.audit()
    paged._computation._forward = computation
    expected = [
        alone(model, [("p", PROMPT, parameters(6, number, 1.0))])[0].tokens for number in range(3)
    ]
    results = drain(paged)
    assert [one.tokens for one in results] == expected
    for result in results:
        scored = rescored(model, PROMPT, result.tokens, 1.0)
        assert result.logprobs == pytest.approx(scored, abs=1e-5)


def test_the_trainers_forward_pass_is_the_same_while_an_engine_works_on_its_model() -> None:
    model = small_model().train()
    tokens = torch.tensor([PROMPT])
    before = model(tokens).logits
    paged = engine(model)
    paged.submit("p", 0, PROMPT, parameters(4))
    paged.step()
    assert model.training
    assert torch.equal(model(tokens).logits, before)
    model(tokens).logits.sum().backward()
    drain(paged)
    assert all(one.requires_grad for one in model.parameters())


# ---- what comes back


def test_results_carry_what_they_are_of(model) -> None:
    paged = engine(model, decode=letters)
    paged.submit("p", 1, PROMPT, parameters(4))
    ended = []
    while not ended:
        ended = paged.advance().ended
    (completion,) = ended
    assert completion.digests == digests(PROMPT, completion.result.tokens)
    assert completion.text == letters(completion.result.tokens)
    assert completion.attended == completion.result.versions == [0] * 4
    assert completion.supports is None
    assert completion.top is None


def test_the_tokens_that_could_have_been_drawn_are_reported_for_renormalising(model) -> None:
    paged = engine(model)
    paged.submit("p", 0, PROMPT, parameters(9, 4, 1.0, top_p=0.7, keep_support=True))
    paged.submit("q", 0, PROMPT, parameters(9, 4, 1.0, top_k=3, keep_support=True))
    paged.submit("r", 0, PROMPT, parameters(9, 4, 1.0, keep_support=True))
    ended = {}
    while paged.stats().running or paged.stats().waiting:
        ended |= {one.result.prompt_id: one for one in paged.advance().ended}
    for name in "pq":
        completion = ended[name]
        result = completion.result
        for place, (token, support) in enumerate(
            zip(result.tokens, completion.supports, strict=True)
        ):
            assert token in support
            everything = [
                rescored(model, PROMPT + result.tokens[:place], [one], 1.0)[0]
                for one in range(VOCABULARY)
            ]
            mass = sum(torch.tensor([everything[one] for one in support]).exp().tolist())
            if name == "p":
                assert mass >= 0.7 - 1e-5
            else:
                assert sorted(support) == sorted(
                    sorted(range(VOCABULARY), key=lambda one: -everything[one])[:3]
                )
    assert ended["r"].supports == [None] * 9


def test_the_likeliest_are_reported_with_their_logprobs(model) -> None:
    paged = engine(model)
    paged.submit("p", 0, PROMPT, parameters(3, top_logprobs=2))
    (completion,) = [one for _ in range(3) for one in paged.advance().ended]
    for token, logprob, top in zip(
        completion.result.tokens, completion.result.logprobs, completion.top, strict=True
    ):
        assert top[0] == (token, logprob)
        assert top[1][1] <= logprob


def test_a_stream_brings_every_token_and_what_ended_is_delivered_afterwards(model) -> None:
    paged = engine(model)
    uid = paged.submit("p", 0, PROMPT, parameters(6))
    paged.submit("q", 0, PROMPT, parameters(2))
    tokens = [token.token for token in paged.stream(uid)]
    ended = {one.prompt_id: one.tokens for one in paged.step()}
    assert ended["p"] == tokens
    assert len(ended["q"]) == 2
    assert list(paged.stream(uid)) == []


# ---- new weights


def test_weights_of_another_shape_are_refused_and_nothing_changes(model) -> None:
    paged = engine(small_model())
    state = other_state()
    for wrong, message in (
        ({**state, "norm.weight": torch.ones(7)}, r"norm.weight is \[7\], the model's is \[32\]"),
        ({name: state[name] for name in list(state)[1:]}, "embed_tokens.weight is missing"),
        ({**state, "more": torch.ones(1)}, "more is not the model's"),
        ({}, "and [0-9]+ more"),
    ):
        with pytest.raises(WeightsMismatch, match=message):
            paged.set_weights(1, wrong)
    assert paged.stats().version == 0
    request = [("p", PROMPT, parameters(4))]
    assert ran(paged, request)[0].tokens == alone(model, request)[0].tokens


@pytest.mark.parametrize("on_update", list(OnUpdate))
def test_an_engine_with_new_weights_equals_a_fresh_one(on_update) -> None:
    """The same prompts again: not a block of the old weights is found."""
    paged = engine(small_model(), on_update=on_update, block_size=4)
    requests = mixed_requests(8)
    for version in range(1, 4):
        ran(paged, requests)
        state = other_state(version)
        paged.set_weights(version, state)
        again = ran(paged, requests)
        fresh = alone(small_model(version), requests)
        assert [one.tokens for one in again] == [one.tokens for one in fresh]
        for result, (_, prompt, _) in zip(again, requests, strict=True):
            scored = rescored(small_model(version), prompt, result.tokens, 1.0)
            assert result.logprobs == pytest.approx(scored, abs=1e-5)
            assert set(result.versions) == {version}


def test_a_version_that_comes_back_with_other_weights_finds_nothing() -> None:
    paged = engine(small_model(), block_size=4)
    request = [("p", PROMPT * 3, parameters(4))]
    ran(paged, request)
    paged.set_weights(1, other_state(1))
    ran(paged, request)
    paged.set_weights(0, other_state(5))
    assert ran(paged, request)[0].tokens == alone(small_model(5), request)[0].tokens


def test_rollouts_finish_on_the_weights_they_were_submitted_under() -> None:
    paged = engine(small_model(), seats=2, block_size=4)
    asked = []
    for version in range(4):
        state = {name: tensor.clone() for name, tensor in other_state(version).items()}
        if version:
            paged.set_weights(version, state)
            for tensor in state.values():
                tensor.zero_()  # the trainer goes on, in place
        else:
            paged = engine(small_model(0), seats=2, block_size=4)
        for number in range(3):
            wanted = (f"{version}/{number}", [number + 3] * 6, parameters(5 + number))
            asked.append((version, wanted))
            paged.submit(wanted[0], 0, wanted[1], wanted[2])
        paged.step()
        assert paged.stats().version == version
    results = {one.prompt_id: one for one in drain(paged)}
    for version, wanted in asked:
        expected = alone(small_model(version), [wanted])[0]
        assert results[wanted[0]].tokens == expected.tokens
        assert set(results[wanted[0]].versions) == {version}
    assert paged.report().work.stale == 0


def test_those_who_wait_for_new_weights_can_be_aborted() -> None:
    paged = engine(small_model())
    paged.submit("old", 0, PROMPT, parameters(6))
    paged.step()
    paged.set_weights(1, other_state())
    uid = paged.submit("new", 0, PROMPT, parameters(6))
    assert paged.stats().waiting == 1
    paged.abort(uid)
    assert [(one.prompt_id, one.finish_reason) for one in paged.step()] == [("new", "aborted")]
    assert [one.prompt_id for one in drain(paged)] == ["old"]


def test_recomputed_rollouts_go_on_with_the_new_weights_and_say_so() -> None:
    paged = engine(small_model(), on_update="recompute", block_size=4, blocks=12, headroom=0.0)
    for number in range(6):
        paged.submit(str(number), 0, [number + 1] * 5, parameters(12))
    for _ in range(5):
        paged.step()
    paged.set_weights(1, other_state())
    for result in drain(paged):
        assert sorted(result.versions) == result.versions
        split = result.versions.count(0)
        later = rescored(
            small_model(9),
            [int(result.prompt_id) + 1] * 5 + result.tokens[:split],
            result.tokens[split:],
            1.0,
        )
        assert result.logprobs[split:] == pytest.approx(later, abs=1e-5)
    assert paged.report().work.retractions > 0
    assert paged.report().work.stale == 0


def test_carried_rollouts_say_which_keys_each_token_looked_at() -> None:
    paged = engine(small_model(), on_update="carry", block_size=4)
    paged.submit("p", 0, PROMPT, parameters(10))
    for _ in range(4):
        paged.step()
    paged.set_weights(1, other_state())
    ended = []
    while not ended:
        ended = paged.advance().ended
    (completion,) = ended
    assert completion.result.versions == [0] * 4 + [1] * 6
    assert completion.attended == [0] * 10
    assert paged.report().work.stale == 6


@pytest.mark.parametrize("on_update", ["recompute", "carry"])
def test_rollouts_too_many_versions_old_end_as_stale(on_update) -> None:
    paged = engine(small_model(), on_update=on_update, max_version_lag=1)
    paged.submit("p", 0, PROMPT, parameters(30))
    paged.step()
    paged.set_weights(1, other_state(1))
    paged.step()
    paged.set_weights(2, other_state(2))
    paged.submit("q", 0, PROMPT, parameters(3))
    results = {one.prompt_id: one for one in drain(paged)}
    assert results["p"].finish_reason == "stale"
    assert results["p"].versions == [0, 1]
    assert results["q"].finish_reason == "length"


def test_weights_may_be_put_in_place_by_a_function() -> None:
    model = small_model()
    paged = engine(model)
    paged.set_weights(1, lambda: model.load_state_dict(other_state(4)))
    request = [("p", PROMPT, parameters(5))]
    assert ran(paged, request)[0].tokens == alone(small_model(4), request)[0].tokens


# ---- another life


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 13])
def test_rollouts_go_on_from_their_tokens_in_another_process(model, steps) -> None:
    requests = mixed_requests(10, seed=4, greedy=False)
    expected = alone(model, requests)
    first = engine(model, block_size=4, blocks=12, headroom=0.0)
    wanted = {}
    results = {}
    for prompt_id, prompt, one in requests:
        first.submit(prompt_id, 0, prompt, one)
        wanted[prompt_id] = one
    for _ in range(steps):
        results |= {one.prompt_id: one for one in first.step()}
    second = engine(model)
    for one in first.unfinished():
        second.resume(one, wanted[one.prompt_id])
    results |= {one.prompt_id: one for one in drain(second)}
    assert len(results) == len(requests)
    for other in expected:
        result = results[other.prompt_id]
        assert result.tokens == other.tokens
        assert result.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert len(result.versions) == len(result.tokens)


def test_a_finished_response_cannot_go_on(model) -> None:
    paged = engine(model)
    paged.submit("p", 0, PROMPT, parameters(6))
    paged.step()
    (unfinished,) = paged.unfinished()
    with pytest.raises(InvalidRequest, match="it is finished"):
        engine(model).resume(unfinished, parameters(1))


# ---- what it says about itself


def test_the_report_adds_up(model) -> None:
    ticks = count()
    paged = PagedEngine(model, settings=Settings(block_size=4), clock=lambda: float(next(ticks)))
    for index in range(4):
        paged.submit("p", index, [5] * 6, parameters(9, index, 1.0))
    paged.step()
    paged.step()
    memory = paged.report().memory
    assert memory.reserved == memory.live + memory.slack + memory.copied
    assert memory.live == 6 + 4
    assert memory.copied == 3 * 2
    assert memory.saved_by_sharing == 3 * 4
    drain(paged)
    report = paged.report()
    assert report.finished == {"length": 4}
    assert report.work.generated == 36
    assert report.work.computed + report.work.found == 4 * (6 + 8)
    assert report.work.iterations == 9
    assert report.stages["forward"].times == 9
    assert report.stages["forward"].p50 == pytest.approx(1.0, rel=0.13)
    assert report.memory.unreferenced > 0
    assert 0 < report.work.mean_live <= report.work.mean_reserved


def test_a_prompt_that_was_answered_at_length_is_started_first(model) -> None:
    paged = engine(model, seats=1)
    for prompt_id, new in (("short", 2), ("long", 12)):
        paged.submit(prompt_id, 0, PROMPT, parameters(new))
    drain(paged)
    ends = []
    for prompt_id in ("short", "long"):
        paged.submit(prompt_id, 1, PROMPT, parameters(12, stop_tokens=()))
    while paged.stats().running or paged.stats().waiting:
        ends += [one.prompt_id for one in paged.step()]
    assert ends == ["long", "short"]


def test_the_cache_takes_what_it_is_given_but_no_more_than_can_be_used(model) -> None:
    assert engine(model, cache_bytes=1 << 40, seats=3).report().memory.capacity == 3 * 96
    tokens = engine(model, cache_bytes=64 * 1024, seats=3).report().memory.capacity
    assert tokens == 64 * 1024 // (2 * 2 * 32 * 4)
