"""What is done about rewards that do not come."""

import pytest

from rlhf.missing import MissingPolicy, Reason, Rule, Then


def test_each_reason_has_its_own_rule() -> None:
    policy = MissingPolicy(
        timed_out=Rule(2, Then.REDRAW), refused=Rule(0, Then.FAIL), grader_error=Rule(1)
    )
    assert [policy.decide(Reason.TIMED_OUT, before) for before in range(3)] == [
        Then.RETRY,
        Then.RETRY,
        Then.REDRAW,
    ]
    assert policy.decide(Reason.REFUSED, 0) is Then.FAIL
    assert policy.decide(Reason.GRADER_ERROR, 1) is Then.REDRAW


def test_every_reason_has_a_rule() -> None:
    assert all(MissingPolicy().rule(reason) for reason in Reason)


@pytest.mark.parametrize("rule", [(-1, Then.FAIL), (0, Then.RETRY), (0, Then.AWAIT)])
def test_a_rule_that_never_ends_is_refused(rule) -> None:
    with pytest.raises(ValueError):
        Rule(*rule)
