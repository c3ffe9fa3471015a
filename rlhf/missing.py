"""Rewards that do not come: why, and what is then done. A missing reward is never a number.

Zero would teach the policy that the sample was bad; NaN would spread. So a reward is either a
`Score` or a `Missing` with a reason, and the policy says per reason whether to ask again, to draw
the slot anew, or to stop the run.
"""

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """Why there is no reward."""

    TIMED_OUT = "TimedOut"
    """No answer within the deadline of an attempt."""
    GRADER_ERROR = "GraderError"
    """The grader raised, crashed, or its server answered with an error."""
    REFUSED = "Refused"
    """The grader says that it will not score this sample."""
    INVALID_ANSWER = "InvalidAnswer"
    """An answer that breaks the rules: NaN, infinite, too large, wrong count, another sample."""
    NO_RESPONSE = "NoResponse"
    """Sampling failed or did not end in time: there is nothing to grade."""


class Then(StrEnum):
    """What is done about a missing reward."""

    RETRY = "Retry"
    """The same sample is asked again."""
    REDRAW = "Redraw"
    """The slot, with its whole group, is filled by another prompt and response."""
    AWAIT = "Await"
    """Another attempt for the same sample is still under way."""
    FAIL = "Fail"
    """The run stops and names the slot."""


class Missing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reward that did not come. `detail` is foreign text: escape it where it is shown."""

    reason: Reason
    detail: str = ""


class Rule(msgspec.Struct, frozen=True):
    """For one reason: ask again so many times, then do what `then` says."""

    retries: int = 2
    then: Then = Then.REDRAW

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}; it must be 0 or more")
        if self.then not in (Then.REDRAW, Then.FAIL):
            raise ValueError(f"after the retries comes Redraw or Fail, not {self.then}")


class MissingPolicy(msgspec.Struct, frozen=True):
    """The rule for each reason."""

    timed_out: Rule = Rule()
    grader_error: Rule = Rule()
    refused: Rule = Rule(retries=0)
    invalid_answer: Rule = Rule(retries=1)
    no_response: Rule = Rule(retries=1)

    def decide(self, reason: Reason, before: int) -> Then:
        """What follows a missing reward after `before` earlier ones with the same reason and draw."""
        rule = self.rule(reason)
        return Then.RETRY if before < rule.retries else rule.then

    def rule(self, reason: Reason) -> Rule:
        """The rule of a reason."""
        return {
            Reason.TIMED_OUT: self.timed_out,
            Reason.GRADER_ERROR: self.grader_error,
            Reason.REFUSED: self.refused,
            Reason.INVALID_ANSWER: self.invalid_answer,
            Reason.NO_RESPONSE: self.no_response,
        }[reason]
