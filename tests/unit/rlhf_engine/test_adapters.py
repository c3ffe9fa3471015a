"""Foreign engines behind our interface, against stand-ins that behave as those engines document it."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import importlib.util
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import alone, parameters, small_model

from rlhf.adapters import transformers_batching, vllm
from rlhf.adapters.foreign import EngineDied, UnsupportedParameters, WrongAnswer
from rlhf.adapters.transformers_batching import TransformersEngine
from rlhf.adapters.vllm import VllmEngine, VllmUnavailable
from rlhf.generation import Engine, PromptTooLong, drain
from rlhf.model.huggingface import ModelUnavailable

PROMPT = [5, 6, 7, 8]


class StandIn:
    """Requests in, finished outputs out, last come first; its weights are a model's of ours."""

    def __init__(self) -> None:
        self.model = small_model()
        self.loaded: list[int] = []
        self.open: dict[str, tuple] = {}
        self.seen: list[tuple] = []
        self.found: dict[str, int] = {}
        self.prefixes: set[tuple] = set()
        self.alive = True
        self.spans = None

    def load(self, version: int, state) -> None:
        assert not self.open, "weights changed under requests"
        self.loaded.append(version)
        self.model.load_state_dict(state)

    def load_state_dict(self, state) -> None:
        self.load(-1, state)

    def is_running(self) -> bool:
        return self.alive

    def pause(self):
        assert self.alive
        return nullcontext()

    def finish(self, name: str):
        prompt, params = self.open.pop(name)
        return alone(self.model, [(name, prompt, params)])[0]


class VllmStandIn(StandIn):
    """`LLMEngine`: a dict of log-probabilities per token, the chosen one not first; prefixes by salt."""

    def add_request(self, request_id, prompt, params) -> None:
        self.seen.append((request_id, prompt, params))
        given = prompt["prompt_token_ids"]
        key = (prompt["cache_salt"], tuple(given))
        self.found[request_id] = 3 if key in self.prefixes else 0
        self.prefixes.add(key)
        wanted = parameters(
            params.max_tokens,
            params.seed,
            params.temperature,
            stop_tokens=tuple(params.stop_token_ids),
        )
        self.open[request_id] = (given, wanted)

    def step(self):
        if not self.open:
            return []
        name = list(self.open)[-1]
        unfinished = [SimpleNamespace(finished=False) for _ in self.open]
        result = self.finish(name)
        logprobs = [
            {0: SimpleNamespace(logprob=-99.0), token: SimpleNamespace(logprob=value)}
            for token, value in zip(result.tokens, result.logprobs, strict=True)
        ]
        completion = SimpleNamespace(
            token_ids=tuple(result.tokens),
            logprobs=logprobs,
            finish_reason=result.finish_reason,
            weight_versions=self.spans,
        )
        return [
            *unfinished,
            SimpleNamespace(
                request_id=name,
                finished=True,
                outputs=[completion],
                num_cached_tokens=self.found[name],
            ),
        ]

    def abort_request(self, request_ids) -> None:
        for name in request_ids:
            del self.open[name]


class ManagerStandIn(StandIn):
    """The continuous batching manager: results from a queue, one at a time."""

    def add_request(self, input_ids, request_id, *, max_new_tokens, eos_token_id) -> None:
        wanted = parameters(max_new_tokens, 0, 0.0, stop_tokens=tuple(eos_token_id))
        self.open[request_id] = (input_ids, wanted)

    def get_result(self, timeout):
        assert timeout < 1, "a step waits a little, never long"
        if not self.open or not self.alive:
            return None
        name = list(self.open)[-1]
        result = self.finish(name)
        return SimpleNamespace(
            request_id=name, generated_tokens=result.tokens, logprobs=result.logprobs, error=None
        )

    def cancel_request(self, request_id) -> None:
        del self.open[request_id]


def vllm_engine(stand_in: StandIn, **more) -> VllmEngine:
    settings = {"context": 64, "capacity": 40} | more
    return VllmEngine(stand_in, SimpleNamespace, stand_in.load, **settings)


def transformers_engine(stand_in: StandIn, **more) -> TransformersEngine:
    settings = {"temperature": 0.0, "context": 64, "capacity": 40} | more
    return TransformersEngine(stand_in, stand_in, **settings)


BOTH = pytest.mark.parametrize(
    ("made", "kind"),
    [(vllm_engine, VllmStandIn), (transformers_engine, ManagerStandIn)],
    ids=["vllm", "transformers"],
)


@BOTH
def test_results_are_paired_by_name_and_equal_our_own(made, kind) -> None:
    adapter: Engine = made(kind())
    asked = [(str(number), [number + 4] * 5, parameters(6, number, 0.0)) for number in range(4)]
    for prompt_id, prompt, wanted in asked:
        adapter.submit(prompt_id, 2, prompt, wanted)
    results = drain(adapter)
    expected = alone(small_model(), asked)
    assert [(one.prompt_id, one.sample_idx) for one in results] == [
        (prompt_id, 2) for prompt_id, _, _ in asked
    ]
    assert [one.tokens for one in results] == [one.tokens for one in expected]
    for one, other in zip(results, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert adapter.stats() == (0, 0, 4, sum(len(one.tokens) for one in results), 0)


@BOTH
def test_what_never_fits_is_refused(made, kind) -> None:
    adapter = made(kind())
    for prompt in ([], [5] * 36):
        with pytest.raises(PromptTooLong):
            adapter.submit("p", 0, prompt, parameters(5))
    adapter.submit("p", 0, [5] * 35, parameters(5))
    assert len(drain(adapter)) == 1


@BOTH
def test_new_weights_wait_for_what_is_out_and_later_requests_for_them(made, kind) -> None:
    stand_in = kind()
    adapter = made(stand_in)
    asked = []
    for version in range(3):
        if version:
            state = {
                name: tensor.clone() for name, tensor in small_model(version).state_dict().items()
            }
            adapter.set_weights(version, state)
            if version > 1 or stand_in.open:
                for tensor in state.values():
                    tensor.zero_()
        wanted = (str(version), PROMPT, parameters(5))
        asked.append(wanted)
        adapter.submit(wanted[0], 0, wanted[1], wanted[2])
        assert adapter.stats().version == version
    for version, result in enumerate(drain(adapter)):
        expected = alone(small_model(version), [asked[version]])[0]
        assert result.tokens == expected.tokens
        assert result.versions == [version] * len(result.tokens)
    assert len(stand_in.loaded) == 2


@BOTH
def test_aborts_end_once_whether_out_or_waiting_for_weights(made, kind) -> None:
    adapter = made(kind())
    first = adapter.submit("a", 0, PROMPT, parameters(5))
    adapter.set_weights(1, small_model(1).state_dict())
    second = adapter.submit("b", 0, PROMPT, parameters(5))
    adapter.submit("c", 0, PROMPT, parameters(5))
    for uid in (first, second, second, 99):
        adapter.abort(uid)
    results = {one.prompt_id: one.finish_reason for one in drain(adapter)}
    assert results == {"a": "aborted", "b": "aborted", "c": "length"}


def test_vllm_is_asked_for_what_rlhf_needs() -> None:
    stand_in = VllmStandIn()
    adapter = vllm_engine(stand_in)
    adapter.submit(
        "p", 0, PROMPT, parameters(5, 2**62 + 1, 0.6, stop_tokens=(3,), min_new_tokens=0)
    )
    drain(adapter)
    (_, prompt, params) = stand_in.seen[0]
    assert prompt == {"prompt_token_ids": PROMPT, "cache_salt": "0.0"}
    assert vars(params) == {
        "n": 1,
        "temperature": 0.6,
        "max_tokens": 5,
        "min_tokens": 0,
        "seed": 2**62 + 1,
        "stop_token_ids": [3],
        "ignore_eos": True,
        "logprobs": 0,
        "detokenize": False,
    }


def test_vllm_finds_no_prefix_of_other_weights_also_when_a_version_comes_back() -> None:
    adapter = vllm_engine(VllmStandIn())
    cached = []
    for version in (0, 0, 1, 0):
        if version != adapter.stats().version:
            adapter.set_weights(version, small_model(len(cached)).state_dict())
        adapter.submit("p", 0, PROMPT, parameters(3))
        cached += [one.cached_tokens for one in drain(adapter)]
    assert cached == [0, 3, 0, 0]


@pytest.mark.parametrize(
    ("spans", "versions"),
    [
        ([(4, 0, 2), (5, 2, 6)], [4, 4, 5, 5, 5, 5]),
        ([(4, 0, 2)], [0] * 6),
        ([(4, 1, 6)], [0] * 6),
        (None, [0] * 6),
    ],
)
def test_vllms_spans_of_weights_become_a_version_per_token(spans, versions) -> None:
    stand_in = VllmStandIn()
    stand_in.spans = spans
    adapter = vllm_engine(stand_in)
    adapter.submit("p", 0, PROMPT, parameters(6))
    assert [one.versions for one in drain(adapter)] == [versions]


@pytest.mark.parametrize("more", [{"top_k": 5}, {"top_p": 0.9}])
def test_logprobs_of_a_cut_distribution_are_refused(more) -> None:
    with pytest.raises(UnsupportedParameters, match="top-k"):
        vllm_engine(VllmStandIn()).submit("p", 0, PROMPT, parameters(5, 0, 1.0, **more))
    with pytest.raises(UnsupportedParameters, match="top-k"):
        transformers_engine(ManagerStandIn()).submit("p", 0, PROMPT, parameters(5, 0, 0.0, **more))


def test_transformers_draws_at_one_temperature_and_says_that_it_is_not_repeatable() -> None:
    adapter = transformers_engine(ManagerStandIn(), temperature=0.7)
    with pytest.raises(UnsupportedParameters, match=r"temperature 0\.7, not at 1"):
        adapter.submit("p", 0, PROMPT, parameters(5, 0, 1.0))
    adapter.submit("p", 0, PROMPT, parameters(5, 0, 0.7))
    assert not adapter.repeatable
    assert vllm_engine(VllmStandIn()).repeatable


def test_a_manager_that_has_died_is_noticed() -> None:
    stand_in = ManagerStandIn()
    adapter = transformers_engine(stand_in)
    adapter.submit("p", 0, PROMPT, parameters(5))
    stand_in.alive = False
    with pytest.raises(EngineDied, match="1 requests out"):
        adapter.step()
    with pytest.raises(EngineDied, match="reach nobody"):
        adapter._load(1, {})
    stand_in.get_result = lambda **_: SimpleNamespace(error="no memory")
    with pytest.raises(EngineDied, match="no memory"):
        adapter.step()


def test_an_answer_with_one_logprob_too_few_is_not_believed() -> None:
    stand_in = ManagerStandIn()
    adapter = transformers_engine(stand_in)
    adapter.submit("p", 0, PROMPT, parameters(5))
    whole = stand_in.finish
    stand_in.finish = lambda name: (lambda one: one._replace(logprobs=one.logprobs[1:]))(
        whole(name)
    )
    with pytest.raises(WrongAnswer, match="5 tokens, 4 log-probabilities"):
        adapter.step()


def test_without_the_packages_it_is_said_what_to_install() -> None:
    if importlib.util.find_spec("vllm") is None:
        with pytest.raises(VllmUnavailable, match="pip install vllm"):
            vllm.connect("model", print)
    if importlib.util.find_spec("transformers") is None:
        with pytest.raises(ModelUnavailable, match="needs the package transformers"):
            transformers_batching.connect(None, temperature=0.0, blocks=4)
