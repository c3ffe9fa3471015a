"""The scheduler of steps: examples for each rule, and the faults that such schedulers had."""

import subprocess
import sys

import pytest
from support.kv_world import World, WrongMemory

from rlhf.kv.blocks import Corrupted
from rlhf.kv.plan import FAILED, Limits
from rlhf.kv.scheduler import NeverFits, Scheduler
from rlhf.kv.sequence import State
from rlhf.kv.waiting import Order

FIFO = Order(longest_first=False)


def world(blocks: int = 40, **limits) -> World:
    settings = {"seats": 8, "budget": 64, "chunk": 64, "headroom": 0.0} | limits
    return World(blocks=blocks, limits=Limits(**settings), order=FIFO)


def always(value):
    return lambda _: value


def reasons(made: World) -> dict[int, str]:
    return {ended.sequence.uid: ended.reason for ended in made.ended}


def test_blocks_and_scheduler_load_without_torch() -> None:
    code = "import sys, rlhf.kv.scheduler, rlhf.engine_text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# ---- a step


def test_a_prompt_is_read_in_chunks_while_others_decode() -> None:
    made = world(chunk=3)
    first = made.submit([2] * 3, 20)
    made.step()
    late = made.submit([9] * 8, 5)
    chunks = []
    for _ in range(3):
        plan = made.scheduler.plan()
        assert [one.uid for one in plan.decoding] == [first.uid]
        chunks.append([(c.sequence.uid, c.start, c.length, len(c.drawing)) for c in plan.chunks])
        made.compute(plan)
        made.scheduler.commit(plan, [5] * len(plan.drawing()))
    assert chunks == [[(late.uid, 0, 3, 0)], [(late.uid, 3, 3, 0)], [(late.uid, 6, 2, 1)]]


def test_no_step_computes_more_than_its_budget() -> None:
    made = world(seats=4, budget=9, chunk=6)
    for _ in range(6):
        made.submit([2, 3] * 5, 4)
    while made.scheduler.running or made.scheduler.waiting:
        plan = made.scheduler.plan()
        assert plan.tokens <= 9
        made.scheduler.commit(plan, [5] * len(plan.drawing()))


def test_a_budget_below_the_seats_is_refused() -> None:
    with pytest.raises(ValueError, match="a budget of 4"):
        Scheduler(World().pool, Limits(seats=5, budget=4))


def test_a_seat_that_becomes_free_is_given_away_in_the_next_step() -> None:
    made = world(seats=1)
    made.submit([2], 2)
    made.submit([3], 1)
    ends = []
    while made.scheduler.running or made.scheduler.waiting:
        ends.append([ended.sequence.uid for ended in made.step()])
    assert ends == [[], [0], [1]]


def test_what_is_committed_is_what_was_planned() -> None:
    made = world()
    made.submit([2], 5)
    plan = made.scheduler.plan()
    with pytest.raises(Corrupted, match="before the previous one"):
        made.scheduler.plan()
    with pytest.raises(Corrupted, match="not what was planned"):
        made.scheduler.commit(plan, [])
    with pytest.raises(Corrupted, match="not what was planned"):
        made.scheduler.commit(plan._replace(copies=[]), [5])
    made.scheduler.commit(plan, [5])


def test_nothing_to_do_is_an_empty_plan() -> None:
    made = world()
    plan = made.scheduler.plan()
    assert plan.tokens == 0
    assert made.scheduler.commit(plan, []) == []


# ---- ends


def test_a_stop_token_on_the_last_place_is_a_stop() -> None:
    made = world()
    made.draw = always(7)
    sequence = made.submit([2, 3], 1, stops=(7,))
    made.drain()
    assert reasons(made) == {0: "stop"}
    assert sequence.generated == [7]


@pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("new", [1, 2, 5])
def test_every_length_around_the_border_of_a_block_ends_after_its_tokens(length, new) -> None:
    made = world(blocks=-(-(length + new - 1) // 4))
    sequence = made.submit([2] * length, new)
    made.drain()
    assert reasons(made) == {0: "length"}
    assert len(sequence.generated) == new
    assert made.empty()


def test_numbers_that_are_none_end_a_sequence_as_failed_and_no_other() -> None:
    made = world()
    first, second = made.submit([2], 5), made.submit([3], 5)
    made.step()
    made.draw = lambda one: FAILED if one is first else 9
    made.drain()
    assert reasons(made) == {first.uid: "failed", second.uid: "length"}
    assert len(first.generated) == 1
    assert made.empty()


def test_a_first_token_that_is_no_number_ends_it_as_failed() -> None:
    made = world()
    made.draw = always(FAILED)
    made.submit([2] * 5, 5)
    made.drain()
    assert reasons(made) == {0: "failed"}
    assert made.empty()


def test_what_led_to_no_numbers_is_found_by_nobody() -> None:
    made = world()
    made.draw = always(FAILED)
    made.submit([2] * 9, 5)
    made.drain()
    made.draw = None
    again = made.submit([2] * 9, 5)
    made.drain()
    assert (again.cached_tokens, reasons(made)[again.uid]) == (0, "length")


def test_what_never_fits_is_refused_and_the_others_go_on() -> None:
    made = world(blocks=3)
    made.submit([2] * 4, 5)
    with pytest.raises(NeverFits, match="need 4 blocks of 4; the pool has 3"):
        made.submit([2] * 8, 6)
    made.submit([2] * 8, 5)  # the last token needs no place: 12 do
    made.drain()
    assert reasons(made) == {0: "length", 2: "length"}


def waiting(made: World):
    return made.submit([2] * 6, 5)


def prefilling(made: World):
    made.scheduler.limits = made.scheduler.limits._replace(chunk=2)
    sequence = made.submit([2] * 6, 5)
    made.step()
    assert sequence.left == 4
    return sequence


def decoding(made: World):
    sequence = made.submit([2] * 6, 5)
    made.step()
    made.step()
    return sequence


def forked(made: World):
    made.submit([2] * 6, 5, group="g")
    sequence = made.submit([2] * 6, 5, group="g")
    made.step()
    assert made.pool.holders(sequence.blocks[0]) == 2
    return sequence


def following(made: World):
    made.scheduler.limits = made.scheduler.limits._replace(chunk=2)
    made.submit([2] * 6, 5, group="g")
    sequence = made.submit([2] * 6, 5, group="g")
    made.step()
    assert sequence.state is State.RUNNING
    assert not sequence.blocks
    return sequence


def leading(made: World):
    following(made)
    return next(one for one in made.scheduler.running_sequences() if one.followers)


@pytest.mark.parametrize("state", [waiting, prefilling, decoding, forked, following, leading])
def test_an_abort_in_any_state_frees_all_and_ends_once(state) -> None:
    made = world()
    neighbour = made.submit([9] * 5, 3)
    sequence = state(made)
    made.ended.append(made.scheduler.end(sequence, "aborted"))
    made.scheduler.audit()
    with pytest.raises(Corrupted, match="ends twice"):
        made.scheduler.end(sequence, "aborted")
    made.drain()
    assert reasons(made)[sequence.uid] == "aborted"
    assert reasons(made)[neighbour.uid] == "length"
    assert len(made.ended) == made.next_uid
    assert made.empty()


def test_who_has_just_finished_cannot_be_ended_again() -> None:
    made = world()
    sequence = made.submit([2], 1)
    made.step()
    with pytest.raises(Corrupted, match="ends twice"):
        made.scheduler.end(sequence, "aborted")


# ---- preemption


def test_the_one_with_the_fewest_computed_tokens_gives_up_never_the_oldest() -> None:
    made = world(blocks=6, chunk=4)
    oldest = made.submit([2] * 4, 17)
    longer = made.submit([3] * 7, 9)
    short = made.submit([4] * 2, 13)
    while not made.scheduler.preemptions:
        made.step()
    assert short.preemptions == 1
    assert (oldest.preemptions, longer.preemptions) == (0, 0)
    made.drain()
    assert oldest.preemptions == 0
    assert made.empty()


@pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9])
def test_a_resumed_sequence_goes_on_from_its_last_token(length: int) -> None:
    """Preempted around the border of a block: no token is lost, doubled or drawn again."""
    calm, tight = world(blocks=50), world(blocks=7)
    for made in (calm, tight):
        made.submit([2] * 4, 17)
        made.submit([3] * length, 12)
        made.drain()
    assert tight.scheduler.preemptions > 0
    tokens = [{e.sequence.uid: e.sequence.tokens for e in made.ended} for made in (calm, tight)]
    assert tokens[0] == tokens[1]
    assert all(len(e.sequence.tokens) == e.sequence.limit for e in tight.ended)


def test_no_more_are_preempted_than_is_needed() -> None:
    """Three need a block in one step and none is free: one gives up two, which is enough for both."""
    made = world(blocks=8)
    made.submit([2] * 4, 29)
    others = [made.submit([3 + number] * 5, 20) for number in range(3)]
    while not made.scheduler.preemptions:
        made.step()
    assert [one.preemptions for one in others] == [0, 0, 1]


def test_tokens_computed_twice_are_counted() -> None:
    made = world(blocks=7, prefix_cache=False)
    made.submit([2] * 4, 17)
    made.submit([3] * 5, 12)
    made.drain()
    holdings = made.scheduler.holdings
    needed = (4 + 16) + (5 + 11)
    assert holdings.recomputed_tokens > 0
    assert made.scheduler.computed_tokens == needed + holdings.recomputed_tokens


# ---- fairness


def test_small_requests_pass_a_big_one_but_not_forever() -> None:
    made = World(
        blocks=10, limits=Limits(seats=8, budget=64, headroom=0.0), order=Order(False, pass_limit=3)
    )
    made.submit([2] * 12, 10)
    made.step()
    big = made.submit([3] * 36, 4)
    small = []
    for number in range(30):
        small.append(made.submit([4 + number % 5] * 3, 4))
        made.step()
        if big.state is not State.WAITING:
            break
    assert any(one.state is State.FINISHED for one in small), "nobody passed"
    made.drain()
    assert len(made.ended) == made.next_uid
    assert big.passed_over == 3


def test_a_big_request_behind_small_ones_gets_in_while_small_ones_keep_coming() -> None:
    made = World(
        blocks=10, limits=Limits(seats=8, budget=64, headroom=0.0), order=Order(pass_limit=4)
    )
    for _ in range(3):
        made.submit([2] * 4, 4)
    made.step()
    big = made.submit([3] * 36, 4)
    for _ in range(40):
        made.submit([5] * 3, 3)
        made.step()
    assert big.state is State.FINISHED


# ---- sharing


@pytest.mark.parametrize("length", [6, 7, 8, 9])
def test_siblings_read_their_prompt_once_and_share_its_full_blocks(length: int) -> None:
    made = world()
    siblings = [made.submit([2] * length, 6, group="g") for _ in range(4)]
    made.step()
    assert made.scheduler.computed_tokens == length
    full = length // 4
    assert len({tuple(one.blocks[:full]) for one in siblings}) == 1
    assert all(made.pool.holders(block) == 4 for block in siblings[0].blocks[:full])
    own = [one.blocks[full] for one in siblings if length % 4]
    assert len(set(own)) == len(own)
    assert made.scheduler.holdings.copied == 3 * (length % 4)
    assert [one.cached_tokens for one in siblings] == [0] + [length] * 3
    made.drain()
    assert len({tuple(ended.sequence.generated) for ended in made.ended}) == 4
    assert made.empty()


def test_siblings_without_a_seat_follow_by_the_prefix_that_is_known() -> None:
    made = world(seats=2)
    for _ in range(4):
        made.submit([2] * 9, 6, group="g")
    made.drain()
    # The second is forked off the first; of the later two one finds two blocks and forks the other.
    assert made.scheduler.holdings.found_tokens == 9 + 8 + 9
    assert made.empty()


def test_equal_prompts_of_one_step_do_not_find_what_is_not_yet_written() -> None:
    made = world()
    first, second = made.submit([2] * 9, 4), made.submit([2] * 9, 4)
    made.step()
    assert (first.cached_tokens, second.cached_tokens) == (0, 0)
    assert not set(first.blocks) & set(second.blocks)
    made.drain()


@pytest.mark.parametrize("length", [4, 8, 12])
def test_a_prompt_that_is_wholly_known_still_computes_its_last_token(length: int) -> None:
    made = world()
    made.submit([2] * length, 4)
    made.drain()
    again = made.submit([2] * length, 4)
    made.step()
    assert again.cached_tokens == length - 4
    made.drain()
    assert made.empty()


def test_without_prefix_cache_nothing_is_found() -> None:
    made = world(prefix_cache=False)
    for _ in range(2):
        made.submit([2] * 9, 4)
        made.drain()
    assert made.scheduler.holdings.found_tokens == 0


def test_tenants_do_not_find_each_other() -> None:
    made = world()
    made.submit([2] * 9, 1, extras=(("tenant", "a"),))
    made.drain()
    other = made.submit([2] * 9, 1, extras=(("tenant", "b"),))
    same = made.submit([2] * 9, 1, extras=(("tenant", "a"),))
    made.drain()
    assert (other.cached_tokens, same.cached_tokens) == (0, 8)


# ---- weights


def test_new_weights_find_nothing_of_the_old_ones() -> None:
    made = world()
    made.submit([2] * 9, 3)
    made.drain()
    made.scheduler.set_version(1)
    again = made.submit([2] * 9, 3)
    made.drain()
    assert again.cached_tokens == 0


def test_what_runs_is_read_again_by_new_weights_also_with_others_waiting_and_preempted() -> None:
    made = world(blocks=7, seats=3)
    for number in range(5):
        made.submit([2 + number] * 5, 12)
    while not made.scheduler.preemptions:
        made.step()
    made.scheduler.set_version(1)
    assert made.pool.held == 0
    made.scheduler.audit()
    made.drain()
    for ended in made.ended:
        policy, attended = ended.sequence.versions()
        assert policy == attended
        assert len(policy) == 12
    assert made.ended[0].sequence.versions()[0][0] == 0


def test_what_is_carried_on_says_which_keys_it_looked_at_and_hands_them_to_nobody() -> None:
    made = world()
    sequence = made.submit([2] * 5, 12)
    for _ in range(4):
        made.step()
    made.scheduler.set_version(1, carry=True)
    made.carrying = True
    made.drain()
    policy, attended = sequence.versions()
    assert policy == [0] * 4 + [1] * 8
    assert attended == [0] * 12
    later = made.submit(sequence.tokens[:13], 2)
    made.drain()
    assert later.cached_tokens == 0


@pytest.mark.parametrize(("prompt", "chunk"), [([2] * 2, 64), ([2] * 6, 2)])
def test_a_block_begun_under_old_weights_is_found_by_nobody(prompt, chunk) -> None:
    """Its first half is of the old weights, its second of the new ones, and so is what follows."""
    made = world(chunk=chunk)
    sequence = made.submit(prompt, 12)
    made.step()
    assert 0 < sequence.computed < 4
    made.scheduler.set_version(1, carry=True)
    made.carrying = True
    made.drain()
    later = made.submit(sequence.tokens[:13], 2)
    made.drain()
    assert later.cached_tokens == 0


def test_a_version_that_is_no_later_is_refused() -> None:
    made = world()
    made.scheduler.set_version(2)
    with pytest.raises(ValueError, match="version 2 is no later than 2"):
        made.scheduler.set_version(2)


def test_siblings_that_waited_for_a_prompt_start_anew_with_new_weights() -> None:
    made = world(chunk=2)
    siblings = [made.submit([2] * 7, 6, group="g") for _ in range(3)]
    made.step()
    assert siblings[0].followers
    made.scheduler.set_version(1)
    assert not siblings[0].followers
    made.scheduler.audit()
    made.drain()
    assert len(made.ended) == 3
    assert made.empty()


def test_a_sibling_that_finds_no_block_for_its_copy_waits_on_its_own() -> None:
    """The free blocks were there when it was seated; one who decodes took them meanwhile."""
    made = world(blocks=6, chunk=1)
    made.submit([3] * 4, 12)
    for _ in range(5):
        made.step()
    siblings = [made.submit([2] * 7, 4, group="g") for _ in range(3)]
    made.step()
    assert len(siblings[0].followers) == 2
    while not siblings[0].generated:
        made.step()
    assert [one.state for one in siblings] == [State.RUNNING, State.RUNNING, State.WAITING]
    made.drain()
    assert len(made.ended) == 4
    assert made.empty()


# ---- gauges


def test_live_tokens_are_what_is_held_without_slack_and_copies() -> None:
    made = world()
    siblings = [made.submit([2] * 6, 9, group="g") for _ in range(3)]
    made.step()
    made.step()
    holdings = made.scheduler.holdings
    # The prompt once, and one token each that has been attended to.
    assert holdings.live_tokens == 6 + 3
    assert holdings.copied == 2 * 2
    assert holdings.slack == sum(one.room for one in siblings) == 3 * 1


def test_the_memory_of_the_tests_notices_a_wrong_block() -> None:
    made = world()
    made.submit([2] * 9, 6)
    other = made.submit([3] * 9, 6)
    made.step()
    other.blocks[0] = 1 if other.blocks[0] != 1 else 2
    made.audited = False
    with pytest.raises(WrongMemory):
        made.step()


@pytest.mark.parametrize("attribute", ["slack", "copied"])
def test_an_audit_compares_the_gauges_with_the_sequences(attribute: str) -> None:
    made = world()
    made.submit([2] * 6, 6)
    made.step()
    setattr(made.scheduler.holdings, attribute, 77)
    with pytest.raises(Corrupted):
        made.scheduler.audit()


def test_ten_thousand_waiting_requests_all_end_and_all_blocks_come_back() -> None:
    made = world(blocks=200, seats=64, budget=256)
    made.audited = False
    made.compute = always(None)  # type: ignore[method-assign]
    made.draw = always(5)
    for number in range(10_000):
        made.submit([2 + number % 9, 3], 2)
    made.drain()
    assert len(made.ended) == 10_000
    assert made.empty()
