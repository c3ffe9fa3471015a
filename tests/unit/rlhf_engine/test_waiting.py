"""Who is next."""

from rlhf.kv.sequence import Sequence
from rlhf.kv.waiting import Order, WaitingLine


def sequence(uid: int, predicted: int = 1, arrived_at: int = 0, **more) -> Sequence:
    made = Sequence(uid, more.pop("prompt", [1]), 100, predicted=predicted, **more)
    made.arrived_at = arrived_at
    return made


def line(*sequences: Sequence, **order) -> WaitingLine:
    made = WaitingLine(Order(**order))
    for each in sequences:
        made.push(each)
    return made


def popped(waiting: WaitingLine, step: int = 0) -> list[int]:
    uids = []
    while (each := waiting.pop(step)) is not None:
        uids.append(each.uid)
    return uids


def test_the_longest_predicted_come_first_and_equals_as_they_came() -> None:
    assert popped(line(sequence(0, 5), sequence(1, 9), sequence(2, 5), sequence(3, 9))) == [
        1,
        3,
        0,
        2,
    ]


def test_first_come_first_served_when_asked_for() -> None:
    assert popped(line(sequence(1, 5), sequence(0, 1), longest_first=False)) == [0, 1]


def test_who_ran_before_comes_first_by_age() -> None:
    young, old = sequence(7, 1), sequence(5, 1)
    young.preemptions = old.preemptions = 1
    assert popped(line(sequence(1, 99), young, old)) == [5, 7, 1]


def test_who_has_waited_too_long_is_next_but_after_those_that_ran_before() -> None:
    ran = sequence(9)
    ran.preemptions = 1
    waiting = line(sequence(0, 1, arrived_at=0), sequence(1, 99, arrived_at=50), ran, wait_limit=60)
    assert popped(waiting, step=61) == [9, 0, 1]


def test_nobody_passes_who_was_passed_over_too_often_or_waits_too_long_or_ran() -> None:
    waiting = line(pass_limit=2, wait_limit=10)
    fresh = sequence(0)
    assert not waiting.must_be_next(fresh, 10)
    assert waiting.must_be_next(fresh, 11)
    fresh.passed_over = 2
    assert waiting.must_be_next(fresh, 0)
    ran = sequence(1)
    ran.preemptions = 1
    assert waiting.must_be_next(ran, 0)


def test_removed_ones_are_gone_and_may_come_back() -> None:
    first, second = sequence(0), sequence(1)
    waiting = line(first, second)
    waiting.remove(first)
    assert 0 not in waiting
    assert [each.uid for each in waiting.sequences()] == [1]
    waiting.push(first)
    assert len(waiting) == 2
    assert popped(waiting) == [0, 1]
    assert len(waiting) == 0


def test_siblings_share_group_prompt_and_extras() -> None:
    leader = sequence(0, group="a")
    same = [sequence(4, group="a"), sequence(3, group="a")]
    others = [
        sequence(5, group="b"),
        sequence(6, group="a", prompt=[2]),
        sequence(7, group="a", extras=(("tenant", "x"),)),
        sequence(8, group="a", generated=[5]),
        sequence(9),
    ]
    waiting = line(*same, *others)
    assert [each.uid for each in waiting.siblings(leader)] == [3, 4]
    assert waiting.siblings(others[3]) == []
    assert waiting.siblings(others[4]) == []


def test_ten_thousand_that_leave_again_leave_nothing_behind() -> None:
    waiting = line()
    for uid in range(10_000):
        each = sequence(uid, uid % 7, group="g")
        waiting.push(each)
        if uid % 100:
            waiting.remove(each)
    assert len(waiting) == 100
    assert len(waiting._ranked) < 1000
    assert len(popped(waiting)) == 100
    assert not waiting._siblings
