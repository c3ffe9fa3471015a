"""A grader's answers, checked: every sample has exactly one of its own, or a typed reason why not.

One answer too few or too many means that the grader has lost count, and then none of them can be
trusted: the whole call is refused. This is the only place that pairs answers with samples, and it
does so by identity.
"""

from collections.abc import Sequence

from rlhf.graders.protocol import Answer, BadAnswer, Grader, GraderFailed, Refused, Sample
from rlhf.identity import Envelope
from rlhf.missing import Missing, Reason

_DETAIL_CHARACTERS = 500


async def answers_of(grader: Grader, samples: Sequence[Sample]) -> list[Answer]:
    """Calls a grader; whatever it does, there is one answer per sample, in the samples' order."""
    try:
        given = await grader.grade(samples)
    # A grader is foreign code: whatever it raises is a missing reward with a name, not the end of
    # the run. Cancellation passes through.
    except Exception as error:
        missing = missing_for(error)
        return _all(samples, missing.reason, f"{grader.name}: {missing.detail}")
    return checked(given, samples, grader.name)


def missing_for(error: Exception) -> Missing:
    """The missing reward that an error of a grader means."""
    match error:
        case Refused():
            return Missing(Reason.REFUSED, str(error))
        case BadAnswer():
            return Missing(Reason.INVALID_ANSWER, str(error))
        case TimeoutError():
            return Missing(Reason.TIMED_OUT, str(error))
        case GraderFailed():
            return Missing(Reason.GRADER_ERROR, str(error))
        case _:
            return Missing(Reason.GRADER_ERROR, f"{type(error).__name__}: {error}")


def checked(given: Sequence[Answer], samples: Sequence[Sample], name: str) -> list[Answer]:
    """The answers in the order of the samples; refused ones are missing rewards with a reason."""
    if not isinstance(given, Sequence) or not all(isinstance(each, Answer) for each in given):
        return _all(samples, Reason.INVALID_ANSWER, f"{name} gave no list of answers")
    if len(given) != len(samples):
        told = f"{name} gave {len(given)} answers for {len(samples)} samples"
        return _all(samples, Reason.INVALID_ANSWER, told)
    by_envelope: dict[Envelope, Answer] = {each.envelope: each for each in given}
    foreign = [each for each in by_envelope if each not in {sample.envelope for sample in samples}]
    if foreign or len(by_envelope) != len(samples):
        told = (
            f"{name} answered for {foreign[0].sample_id} ({foreign[0].digests}), which was not asked"
            if foreign
            else f"{name} answered twice for one sample"
        )
        return _all(samples, Reason.INVALID_ANSWER, told)
    return [_finite(by_envelope[sample.envelope], name) for sample in samples]


def _finite(answer: Answer, name: str) -> Answer:
    if isinstance(answer.outcome, Missing):
        return answer
    fault = answer.outcome.fault()
    if not fault:
        return answer
    return Answer(answer.envelope, Missing(Reason.INVALID_ANSWER, f"{name}: {fault}"))


def _all(samples: Sequence[Sample], reason: Reason, detail: str) -> list[Answer]:
    missing = Missing(reason, detail[:_DETAIL_CHARACTERS])
    return [sample.answered(missing) for sample in samples]
