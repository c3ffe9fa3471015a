"""Deadlines, hedges, the watchdog, and waits that say what they wait for."""

from support.rlhf_stream import digests_of, fill, grade, reward_for, shape

from rlhf.journal_records import Answered, Missed, Stalled
from rlhf.missing import Missing, MissingPolicy, Reason, Rule, Then
from rlhf.reward_queue import RewardQueue
from rlhf.reward_queue_latency import LatencyHistogram
from rlhf.reward_queue_types import Hedge, Limits, Outcome, Stage

QUICK = Limits(
    grading_seconds=10.0,
    rollout_seconds=30.0,
    stall_seconds=100.0,
    hedge=Hedge(percentile=0.9, after_samples=16, budget=0.5),
)


def claims(queue: RewardQueue, number: int, now: float = 0.0) -> list:
    return [queue.claim(now, f"g{place}").envelope for place in range(number)]


def test_an_attempt_ends_at_its_deadline_and_its_worker_is_named() -> None:
    queue = RewardQueue(shape(), QUICK)
    fill(queue)
    (envelope,) = claims(queue, 1)
    assert queue.tick(9.9).expired == []
    (expired,) = queue.tick(10.0).expired
    assert (expired.envelope, expired.worker) == (envelope, "g0")
    assert queue.tick(11.0).expired == []
    assert queue.claim(11.0, "g").envelope.seq == 0


def test_a_response_that_never_comes_is_sampled_again() -> None:
    queue = RewardQueue(shape(), QUICK)
    slot = queue.dispatch(0.0)
    queue.tick(30.0)
    assert queue.dispatch(30.0) == slot
    # The first rollout may still come: it is the same slot and draw, hence the same response.
    assert queue.submit(slot, *digests_of(slot), 31.0) is Outcome.APPLIED


def test_a_time_out_follows_its_policy_to_the_redraw() -> None:
    limits = Limits(grading_seconds=1.0, missing=MissingPolicy(timed_out=Rule(1, Then.REDRAW)))
    queue = RewardQueue(shape(), limits)
    fill(queue)
    for now in (0.0, 1.0):
        claims(queue, 1, now)
        queue.tick(now + 1.0)
    assert [each.then for each in queue.records if isinstance(each, Missed)] == ["Retry", "Redraw"]
    assert [(slot.seq, slot.draw) for slot in fill(queue)] == [(0, 1), (1, 1)]


def measured(latency: float = 0.1) -> RewardQueue:
    """A queue that has seen 16 latencies, and has two batches waiting to be graded."""
    queue = RewardQueue(shape(batch_size=16), QUICK)
    fill(queue)
    for envelope in claims(queue, 16):
        queue.answer(envelope, reward_for(envelope), latency)
    return queue


def test_a_slow_request_is_sent_a_second_time_and_the_first_answer_wins() -> None:
    queue = measured()
    slow = claims(queue, 2, 1.0)
    queue.tick(1.05)
    assert queue.grading.deadlines.hedges == 0
    queue.tick(2.0)
    hedge = queue.claim(2.0, "second")
    assert hedge.hedge
    assert (hedge.envelope.seq, hedge.envelope.attempt) == (slow[0].seq, 2)
    assert queue.answer(hedge.envelope, reward_for(hedge.envelope), 2.1) is Outcome.APPLIED
    assert queue.answer(slow[0], reward_for(slow[0]), 2.2) is Outcome.DUPLICATE
    (applied,) = [each for each in queue.records if isinstance(each, Answered) and each.hedged]
    assert applied.worker == "second"


def test_a_sample_is_not_given_up_while_its_other_attempt_is_under_way() -> None:
    limits = Limits(
        hedge=Hedge(0.9, 16, 0.5), missing=MissingPolicy(grader_error=Rule(0, Then.FAIL))
    )
    queue = RewardQueue(shape(batch_size=16), limits)
    fill(queue)
    for envelope in claims(queue, 16):
        queue.answer(envelope, reward_for(envelope), 0.1)
    (slow,) = claims(queue, 1, 1.0)
    queue.tick(2.0)
    hedge = queue.claim(2.0, "second").envelope
    queue.answer(slow, Missing(Reason.GRADER_ERROR), 2.0)
    assert queue.failure is None
    assert queue.answer(hedge, reward_for(hedge), 2.1) is Outcome.APPLIED


def test_hedges_stay_within_their_budget() -> None:
    limits = Limits(grading_seconds=1e6, hedge=Hedge(0.9, 16, 0.1))
    queue = RewardQueue(shape(batch_size=16), limits)
    fill(queue)
    for envelope in claims(queue, 16):
        queue.answer(envelope, reward_for(envelope), 0.1)
    claims(queue, 16, 1.0)
    queue.tick(100.0)
    hedged = 0
    while (claim := queue.claim(100.0, "g")) is not None:
        hedged += claim.hedge
    assert hedged == 3, "a tenth of 32 requests"


def test_nothing_is_hedged_before_latencies_are_known_or_with_no_budget() -> None:
    for limits in (Limits(), Limits(hedge=Hedge(budget=0.0))):
        queue = RewardQueue(shape(), limits)
        fill(queue)
        claims(queue, 8)
        queue.tick(50.0)
        assert queue.claim(50.0, "g") is None


def test_a_stall_is_told_once_per_interval_with_the_names_of_what_is_waited_for() -> None:
    queue = RewardQueue(shape(), Limits(grading_seconds=1e6, stall_seconds=100.0))
    fill(queue)
    claims(queue, 3, 5.0)
    assert queue.tick(99.0).stall is None
    stall = queue.tick(100.0).stall
    told = [wait.sentence(100.0) for wait in stall.waits]
    assert "grading of s0 by g0 since 95.0 s" in told
    assert "claim of s3, s4, s5, s6, s7 since 100.0 s" in told
    assert queue.tick(150.0).stall is None
    assert queue.tick(200.0).stall is not None
    queue.note_stall(stall, 100.0, "File x")
    (record,) = [each for each in queue.records if isinstance(each, Stalled)]
    assert (record.waits, record.stack) == (told, "File x")


def test_a_queue_in_which_things_move_does_not_stall() -> None:
    queue = RewardQueue(shape(), QUICK)
    for now in range(0, 1000, 50):
        fill(queue, now)
        grade(queue, now)
        queue.mark_trained(queue.take(now).number, now)
        assert queue.tick(now).stall is None


def test_every_stage_of_a_batch_is_named() -> None:
    queue = RewardQueue(shape(batch_size=6, group_size=1, lag=1), QUICK)
    slots = [queue.dispatch(1.0, "engine") for _ in range(4)]
    for slot in slots[:3]:
        queue.submit(slot, *digests_of(slot), 2.0)
    first = queue.claim(3.0, "g").envelope
    queue.claim(4.0, "h")
    queue.answer(first, reward_for(first), 5.0)
    waits = {wait.stage: wait for wait in queue.waits(0)}
    assert waits[Stage.ORDER].samples == ((0, 0),)
    assert (waits[Stage.GRADING].samples, waits[Stage.GRADING].holder) == (((1, 0),), "h")
    assert waits[Stage.CLAIM].samples == ((2, 0),)
    assert (waits[Stage.ROLLOUT].samples, waits[Stage.ROLLOUT].holder) == (((3, 0),), "engine")
    assert waits[Stage.DISPATCH].samples == ((4, 0), (5, 0))


def test_the_trainer_and_a_missing_policy_are_named_too() -> None:
    queue = RewardQueue(shape(lag=0), QUICK)
    fill(queue)
    grade(queue)
    queue.take(7.0)
    (wait,) = queue.waits()
    assert (wait.stage, wait.holder, wait.since) == (Stage.TRAINING, "the trainer", 7.0)


def test_the_next_look_is_when_the_first_thing_is_due() -> None:
    queue = RewardQueue(shape(), QUICK)
    assert queue.tick(0.0).next_at is None
    slot = queue.dispatch(1.0)
    assert queue.tick(1.0).next_at == 31.0
    queue.submit(slot, *digests_of(slot), 2.0)
    (envelope,) = claims(queue, 1, 3.0)
    assert queue.tick(3.0).next_at == 13.0
    queue.answer(envelope, reward_for(envelope), 4.0)
    assert queue.tick(4.0).next_at == 104.0, "the watchdog"


def test_percentiles_are_within_five_percent() -> None:
    histogram = LatencyHistogram()
    assert histogram.percentile(0.5) == 0.0
    for value in range(1, 1001):
        histogram.add(value / 1000)
    for fraction in (0.01, 0.5, 0.9, 0.99, 1.0):
        assert fraction <= histogram.percentile(fraction) <= fraction * 1.06
    histogram.add(0.0)
    histogram.add(1e9)
    assert histogram.count == 1002
