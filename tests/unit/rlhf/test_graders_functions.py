"""Reward functions of the user: found, called with what they want to know, believed if finite."""

import asyncio
import threading

import pytest
from msgspec.structs import replace
from support import rlhf_reward_functions as functions
from support.rlhf_samples import sample

from rlhf.graders.checking import answers_of
from rlhf.graders.functions import BadFunction, Called, FunctionGrader, load
from rlhf.graders.protocol import BadAnswer, GraderFailed, score_of
from rlhf.identity import Score
from rlhf.missing import Reason


@pytest.mark.parametrize("inline", [True, False])
async def test_a_function_scores_inline_and_in_a_thread(inline) -> None:
    grader = FunctionGrader(functions.length, inline=inline)
    (answer,) = await grader.grade([sample(response="four")])
    assert answer.outcome == Score(4.0)


async def test_a_coroutine_function_is_awaited() -> None:
    (answer,) = await FunctionGrader(functions.later).grade([sample()])
    assert answer.outcome == Score(2.0)


async def test_parts_are_reported_and_the_context_is_handed_in() -> None:
    (answer,) = await FunctionGrader(functions.in_parts).grade([sample(response="x", answer="x")])
    assert answer.outcome == Score(0.9, {"right": 1.0, "length": 1.0})


async def test_a_function_gets_only_the_context_it_asks_for() -> None:
    (answer,) = await FunctionGrader(functions.length).grade([sample(unasked=1)])
    assert answer.outcome == Score(1.0)
    assert Called(functions.of_the_context)(sample(wanted=3)) == 3.0


async def test_a_hung_function_in_a_thread_does_not_hold_the_loop() -> None:
    release = threading.Event()

    def waiting(prompt: str, response: str) -> float:
        return len(prompt + response) * float(release.wait(60))

    grader = FunctionGrader(waiting)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await grader.grade([sample()])
    release.set()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (functions.raising, Reason.GRADER_ERROR),
        (functions.refusing, Reason.REFUSED),
        (functions.not_a_number, Reason.INVALID_ANSWER),
        (functions.infinite, Reason.INVALID_ANSWER),
        (functions.nothing, Reason.INVALID_ANSWER),
    ],
)
async def test_a_bad_function_gives_a_missing_reward(function, reason) -> None:
    (answer,) = await answers_of(FunctionGrader(function), [sample()])
    assert answer.outcome.reason is reason


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nocolon", "module:function"),
        ("no_such_module_at_all:f", "cannot be imported"),
        ("support.rlhf_reward_functions:nowhere", "has no function nowhere"),
        ("support.rlhf_reward_functions:__name__", "has no function"),
    ],
)
def test_a_function_that_cannot_be_found_is_named(reference, words) -> None:
    with pytest.raises(BadFunction, match=words):
        load(reference)


def test_a_wrong_signature_is_refused_before_the_run() -> None:
    with pytest.raises(BadFunction, match="prompt and a response"):
        FunctionGrader(load("support.rlhf_reward_functions:wrong_signature"))


@pytest.mark.parametrize(
    "value", [None, "1", True, [1.0], {"part": 1.0}, {"reward": None}, float("nan")]
)
def test_what_is_no_score_is_refused(value) -> None:
    with pytest.raises(BadAnswer):
        score_of(value)


@pytest.mark.parametrize("source", ["def f(:", "nowhere_defined", "raise RuntimeError('no')"])
def test_a_module_that_fails_while_it_is_imported_is_told_as_the_user_s(
    tmp_path, monkeypatch, source
) -> None:
    (tmp_path / "their_broken_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadFunction, match=r"'their_broken_module:f' cannot be imported: .*Error"):
        load("their_broken_module:f")


def _two_texts(prompt: str, response: str) -> int:
    return len(response)


def _two_texts_and_more(prompt: str, response: str, **context: str) -> int:
    return len(response) + ("response" in context)


def _any_texts(*texts: str) -> int:
    return len(texts[1])


@pytest.mark.parametrize("function", [_two_texts, _two_texts_and_more, _any_texts])
def test_a_demonstration_beside_the_prompt_does_not_stand_in_for_the_response(function) -> None:
    known = {"response": "demonstration", "prompt": "another", "texts": "a third"}
    scored = FunctionGrader(function).score(replace(sample(response="four"), context=known))
    assert scored == Score(4.0)


def test_a_demonstration_reaches_a_function_that_asks_for_it_by_its_name() -> None:
    def like(question: str, answer: str, response: str) -> float:
        return float(answer == response)

    known = {"response": "same"}
    assert FunctionGrader(like).score(replace(sample(response="same"), context=known)) == Score(1.0)


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(BadAnswer, match="at most 64"):
        score_of({"reward": 1.0, **{str(number): 1.0 for number in range(70)}})


def test_a_pure_function_can_be_asked_at_once_for_audits() -> None:
    assert FunctionGrader(functions.length, pure=True).score(sample(response="abc")) == Score(3.0)
    with pytest.raises(GraderFailed, match="asynchronous"):
        FunctionGrader(functions.later).score(sample())
