"""The scheduler of steps under random use, over a memory that knows what was written into it.

Adds, aborts, forks, preemptions and new weights in any order. After each step all counts agree (I1);
whoever attends sees their own keys and values, of the right weights (I6, I9); at the end everybody has
ended exactly once (I8, I10) and all blocks are back (I2).
"""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.kv_world import World

from rlhf.kv.plan import FAILED, Limits
from rlhf.kv.scheduler import NeverFits
from rlhf.kv.sequence import Sequence, State
from rlhf.kv.waiting import Order

QUICK = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
STOP = 49
limits = st.builds(
    Limits,
    seats=st.sampled_from([1, 3, 8]),
    budget=st.sampled_from([8, 11, 64]),
    chunk=st.sampled_from([1, 3, 16]),
    headroom=st.sampled_from([0.0, 1.0]),
    look_ahead=st.sampled_from([1, 4]),
    prefix_cache=st.booleans(),
)
orders = st.builds(
    Order, st.booleans(), pass_limit=st.integers(0, 3), wait_limit=st.integers(0, 20)
)


class SchedulerMachine(RuleBasedStateMachine):
    """Anything that a caller can do between two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.accepted: list[Sequence] = []

    @initialize(blocks=st.sampled_from([6, 9, 30]), limits=limits, order=orders)
    def begin(self, blocks: int, limits: Limits, order: Order) -> None:
        self.world = World(blocks=blocks, limits=limits, order=order)

    @rule(
        kind=st.integers(0, 2),
        length=st.integers(1, 20),
        new=st.integers(1, 12),
        siblings=st.integers(1, 4),
        written=st.integers(0, 3),
        predicted=st.integers(1, 12),
    )
    def add(self, kind, length, new, siblings, written, predicted) -> None:
        """Requests with one of three prompts, so that prefixes are shared; some go on from before."""
        for _ in range(siblings):
            before = [5] * min(written, new - 1)
            try:
                sequence = self.world.submit(
                    [kind + 2] * length,
                    new,
                    stops=(STOP,),
                    group=f"prompt {kind}",
                    generated=before,
                    predicted=predicted,
                )
            except NeverFits:
                assert -(-(length + new - 1) // 4) > self.world.blocks
                continue
            self.accepted.append(sequence)

    @precondition(lambda self: not self.world.scheduler.running and self.world.scheduler.waiting)
    @rule()
    def start(self) -> None:
        self.world.step()

    @rule(steps=st.integers(1, 6))
    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @rule(choice=st.integers(0, 10_000))
    def abort(self, choice: int) -> None:
        live = [one for one in self.accepted if one.state is not State.FINISHED]
        if live:
            sequence = live[choice % len(live)]
            self.world.ended.append(self.world.scheduler.end(sequence, "aborted"))
            self.world.scheduler.audit()

    @rule(carry=st.booleans())
    def new_weights(self, carry: bool) -> None:
        # What is carried on is of old weights until it has ended: so the memory's check is looser.
        self.world.carrying = carry or (self.world.carrying and bool(self.world.scheduler.running))
        self.world.scheduler.set_version(self.world.scheduler.version + 1, carry=carry)
        self.world.scheduler.audit()

    @rule()
    def the_computation_fails(self) -> None:
        plan = self.world.scheduler.plan()
        self.world.scheduler.abandon(plan)
        self.world.scheduler.audit()

    @rule(choice=st.integers(0, 10_000))
    def numbers_are_no_numbers(self, choice: int) -> None:
        live = [one for one in self.accepted if one.state is not State.FINISHED]
        if live:
            victim = live[choice % len(live)]
            self.world.draw = lambda one: FAILED if one is victim else 3 + len(one.tokens) % 40
            self.world.step()
            self.world.draw = None

    def teardown(self) -> None:
        self.world.drain()
        uids = [ended.sequence.uid for ended in self.world.ended]
        assert sorted(uids) == [one.uid for one in self.accepted]
        assert self.world.empty()
        assert self.world.oldest_preempted == 0
        for ended in self.world.ended:
            if ended.reason in ("stop", "length"):
                check_end(ended.sequence, ended.reason)


def check_end(sequence: Sequence, reason: str) -> None:
    """A finished sequence ends where it must, and knows a version for each token of this life."""
    stopped = sequence.tokens[-1] in sequence.stops
    assert reason == ("stop" if stopped else "length")
    assert stopped or len(sequence.tokens) == sequence.limit
    policy, attended = sequence.versions()
    first = sequence.spans[0][0]
    assert len(policy) == len(attended) == len(sequence.generated) - first
    assert all(oldest <= version for oldest, version in zip(attended, policy, strict=True))
    assert policy == sorted(policy)


SchedulerMachine.TestCase.settings = QUICK
TestScheduler = SchedulerMachine.TestCase


@QUICK
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 9)), max_size=30),
    limits,
    orders,
)
def test_everybody_gets_through_under_any_arrivals(arrivals, limits, order) -> None:
    """Requests keep arriving; each is done within a number of steps that its elders explain (I8)."""
    world = World(blocks=8, limits=limits, order=order)
    for length, new, pause in arrivals:
        world.submit([2 + length] * length, new)
        for _ in range(pause):
            world.step()
    tokens = sum(length + new for length, new, _ in arrivals)
    world.drain(most=20 + 40 * tokens)
    assert len(world.ended) == len(arrivals)
    assert world.oldest_preempted == 0
    assert world.empty()


@QUICK
@given(st.data())
def test_tokens_do_not_depend_on_order_seats_pool_or_chunks(data) -> None:
    """The rule that draws looks at a sequence's own tokens: so must the result (I5)."""
    prompts = data.draw(st.lists(st.lists(st.integers(2, 3), min_size=1, max_size=9), max_size=12))
    results = []
    for _ in range(2):
        world = World(
            blocks=data.draw(st.sampled_from([5, 7, 60])),
            limits=data.draw(limits),
            order=data.draw(orders),
            draw=lambda one: random.Random(f"{one.extras}/{one.tokens}").randrange(2, 50),
        )
        for name in data.draw(st.permutations(range(len(prompts)))):
            world.submit(prompts[name], 9, extras=(("name", name),), group="all")
        world.drain()
        results.append(sorted((end.sequence.extras, end.sequence.generated) for end in world.ended))
    assert results[0] == results[1]
