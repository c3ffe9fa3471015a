"""The engine under random use: adds, aborts, new weights, another life; then everybody is compared.

Each request ends exactly once, all blocks come back, and whoever was not aborted has the tokens that it
would have alone, under the weights of its submission, paired by what the result carries.
"""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from functools import cache

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from support.kv_models import alone, engine, parameters, small_model

from rlhf.engine_requests import DuplicateSample
from rlhf.generation import Result

torch.set_num_threads(1)
model_of = cache(small_model)


@cache
def expected(version: int, prompt: tuple[int, ...], new: int, seed: int, temperature: float):
    wanted = parameters(new, seed, temperature, stop_tokens=(3,))
    return alone(model_of(version), [("p", list(prompt), wanted)])[0]


class EngineMachine(RuleBasedStateMachine):
    """What a pipeline may do with an engine between two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, tuple] = {}
        self.results: list[Result] = []
        self.version = 0

    @initialize(
        blocks=st.sampled_from([7, 30]),
        seats=st.sampled_from([2, 6]),
        chunk=st.sampled_from([2, 64]),
    )
    def begin(self, blocks: int, seats: int, chunk: int) -> None:
        self.make = lambda: engine(
            small_model(self.version),
            version=self.version,
            block_size=4,
            blocks=blocks,
            seats=seats,
            chunk=chunk,
            headroom=0.0,
        )
        self.paged = self.make()

    @rule(
        kind=st.integers(0, 2),
        length=st.integers(1, 13),
        new=st.integers(1, 9),
        index=st.integers(0, 3),
        temperature=st.sampled_from([0.0, 1.0]),
    )
    def submit(self, kind, length, new, index, temperature) -> None:
        prompt = [kind + 5] * length
        seed = 10 * kind + index
        try:
            uid = self.paged.submit(
                f"p{kind}", index, prompt, parameters(new, seed, temperature, stop_tokens=(3,))
            )
        except DuplicateSample:
            assert any(one[1:3] == (kind, index) for one in self.asked.values())
            return
        self.asked[uid] = (self.version, kind, index, tuple(prompt), new, seed, temperature)

    @rule(steps=st.integers(1, 5))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.take(self.paged.step())
            self.paged.audit()

    @rule(choice=st.integers(0, 100))
    def abort(self, choice: int) -> None:
        if self.asked:
            self.paged.abort(list(self.asked)[choice % len(self.asked)])

    @rule()
    def new_weights(self) -> None:
        self.version += 1
        self.paged.set_weights(self.version, model_of(self.version).state_dict())

    @rule()
    def another_life(self) -> None:
        """Killed between two steps; those of the newest weights go on in a new engine."""
        before = {one[1:3]: one for one in self.asked.values()}
        unfinished = self.paged.unfinished()
        self.paged = self.make()
        self.asked = {}
        for one in unfinished:
            asked = before[int(one.prompt_id[1:]), one.sample_idx]
            if asked[0] == self.version:
                wanted = parameters(asked[4], asked[5], asked[6], stop_tokens=(3,))
                self.asked[self.paged.resume(one, wanted)] = asked

    def take(self, results: list[Result]) -> None:
        for result in results:
            version, kind, index, prompt, new, seed, temperature = self.asked.pop(result.uid)
            assert (result.prompt_id, result.sample_idx) == (f"p{kind}", index)
            whole = expected(version, prompt, new, seed, temperature)
            if result.finish_reason == "aborted":
                assert result.tokens == whole.tokens[: len(result.tokens)]
                continue
            assert (result.tokens, result.finish_reason) == (whole.tokens, whole.finish_reason)
            assert result.logprobs == pytest.approx(whole.logprobs, abs=1e-5)
            assert set(result.versions) == {version}

    def teardown(self) -> None:
        while (now := self.paged.stats()).waiting or now.running:
            self.take(self.paged.step())
        assert not self.asked, "somebody never ended"
        self.paged.audit()
        assert self.paged.report().memory.reserved == 0


EngineMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestEngine = EngineMachine.TestCase
