"""A grader's answers: by identity, one each, or a reason why not."""

import math

import pytest
from msgspec.structs import replace
from support.rlhf_samples import sample

from rlhf.graders.checking import answers_of, checked
from rlhf.graders.protocol import Answer, BadAnswer, GraderFailed, Refused
from rlhf.identity import Score
from rlhf.missing import Missing, Reason

SAMPLES = [sample(0), sample(1), sample(2)]
RIGHT = [each.answered(Score(float(number))) for number, each in enumerate(SAMPLES)]


def reasons(answers: list[Answer]) -> set[object]:
    return {getattr(each.outcome, "reason", None) for each in answers}


def test_answers_in_any_order_find_their_samples() -> None:
    assert checked(RIGHT[::-1], SAMPLES, "g") == RIGHT


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (RIGHT[:-1], "2 answers for 3 samples"),
        ([*RIGHT, RIGHT[0]], "4 answers for 3 samples"),
        ([RIGHT[0], RIGHT[0], RIGHT[1]], "answered twice"),
        ([*RIGHT[:2], sample(9).answered(Score(1.0))], "answered for s9"),
        ([], "0 answers for 3"),
        ([0.1, 0.2, 0.3], "no list of answers"),
        (None, "no list of answers"),
    ],
)
def test_who_has_lost_count_is_believed_nothing(given, words) -> None:
    answers = checked(given, SAMPLES, "g")
    assert [each.envelope for each in answers] == [each.envelope for each in SAMPLES]
    assert reasons(answers) == {Reason.INVALID_ANSWER}
    assert words in answers[0].outcome.detail


def test_an_answer_computed_on_other_tokens_is_refused() -> None:
    other = replace(SAMPLES[2].envelope, response_digest="f" * 32)
    given = [*RIGHT[:2], Answer(other, Score(1.0))]
    assert reasons(checked(given, SAMPLES, "g")) == {Reason.INVALID_ANSWER}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_reward_that_is_not_finite_costs_only_itself(value) -> None:
    answers = checked([RIGHT[0], SAMPLES[1].answered(Score(value)), RIGHT[2]], SAMPLES, "g")
    assert [answers[0], answers[2]] == [RIGHT[0], RIGHT[2]]
    assert answers[1].outcome.reason is Reason.INVALID_ANSWER


def test_a_missing_reward_passes_with_its_reason() -> None:
    missing = Missing(Reason.REFUSED, "no")
    answers = checked([SAMPLES[0].answered(missing)], SAMPLES[:1], "g")
    assert answers[0].outcome == missing


class Raising:
    name, pure, largest_batch = "raising", False, 8

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def grade(self, samples):
        assert samples
        raise self.error

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("by zero"), Reason.GRADER_ERROR),
        (GraderFailed("gone"), Reason.GRADER_ERROR),
        (TimeoutError("slow"), Reason.TIMED_OUT),
        (BadAnswer("odd"), Reason.INVALID_ANSWER),
        (Refused("no"), Reason.REFUSED),
    ],
)
async def test_whatever_a_grader_raises_is_a_missing_reward_with_a_name(error, reason) -> None:
    answers = await answers_of(Raising(error), SAMPLES)
    assert reasons(answers) == {reason}
    assert str(error) in answers[0].outcome.detail
    assert answers[0].outcome.detail.startswith("raising: ")


async def test_a_detail_of_ten_megabytes_is_cut() -> None:
    answers = await answers_of(Raising(RuntimeError("x" * (10 << 20))), SAMPLES)
    assert len(answers[0].outcome.detail) <= 500
