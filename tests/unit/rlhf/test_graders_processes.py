"""Reward functions in processes: a hung one is killed and replaced, a crash costs one answer."""

import asyncio
import os
from pathlib import Path

import pytest
from support.rlhf_samples import sample

from rlhf.graders import processes, wire
from rlhf.graders.checking import answers_of
from rlhf.graders.processes import ProcessGrader
from rlhf.identity import Score
from rlhf.missing import Missing, Reason

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture
async def grader_of():
    """Makes graders of the example functions; closes them afterwards."""
    graders = []

    def make(name: str, **options) -> ProcessGrader:
        options = {"workers": 1, "timeout_seconds": 30.0, "search_path": [TESTS], **options}
        graders.append(ProcessGrader(f"support.rlhf_reward_functions:{name}", **options))
        return graders[-1]

    yield make
    for grader in graders:
        await grader.close()


async def outcome(grader: ProcessGrader, **changes) -> Score | Missing:
    (answer,) = await answers_of(grader, [sample(**changes)])
    return answer.outcome


async def test_one_process_scores_one_sample_after_the_other(grader_of) -> None:
    grader = grader_of("in_parts")
    assert await outcome(grader, response="x", answer="x") == Score(
        0.9, {"right": 1.0, "length": 1.0}
    )
    assert (await outcome(grader, response="y", answer="x")).reward == -0.1
    assert grader.replaced == 0


async def test_a_hung_function_is_killed_its_line_named_and_its_process_replaced(grader_of) -> None:
    grader = grader_of("hanging", timeout_seconds=1.0)
    missing = await outcome(grader, response="hang")
    assert missing.reason is Reason.TIMED_OUT
    assert "rlhf_reward_functions.py" in missing.detail
    assert "in hanging" in missing.detail
    assert grader.replaced == 1
    assert await outcome(grader, response="fine") == Score(1.0)


async def test_a_call_that_is_cancelled_ends_its_process(grader_of) -> None:
    grader = grader_of("hanging")
    assert await outcome(grader, response="fine") == Score(1.0)
    (worker,) = grader._idle
    call = asyncio.create_task(grader.grade([sample(response="hang")]))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    with pytest.raises(ProcessLookupError):
        os.kill(worker._process.pid, 0)


async def test_a_crash_costs_one_answer_and_says_how_it_ended(grader_of) -> None:
    grader = grader_of("crashing")
    missing = await outcome(grader)
    assert missing.reason is Reason.GRADER_ERROR
    assert "exit code 3" in missing.detail
    assert grader.replaced == 1


async def test_what_the_function_prints_disturbs_nothing(grader_of) -> None:
    grader = grader_of("printing")
    assert await outcome(grader) == Score(1.0)
    assert await outcome(grader_of("flooding")) == Score(1.0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raising", Reason.GRADER_ERROR),
        ("refusing", Reason.REFUSED),
        ("not_a_number", Reason.INVALID_ANSWER),
        ("nothing", Reason.INVALID_ANSWER),
        ("huge", Reason.GRADER_ERROR),
    ],
)
async def test_a_bad_function_gives_a_missing_reward(grader_of, name, reason) -> None:
    assert (await outcome(grader_of(name))).reason is reason


async def test_an_answer_that_is_too_large_is_refused_unread(grader_of, monkeypatch) -> None:
    monkeypatch.setattr(processes.wire, "MOST_BYTES", 10)
    missing = await outcome(grader_of("length"))
    assert missing.reason is Reason.INVALID_ANSWER
    assert "at most 10" in missing.detail
    assert wire.MOST_BYTES == 10


async def test_a_function_that_cannot_be_loaded_is_named(grader_of) -> None:
    missing = await outcome(grader_of("wrong_signature"))
    assert "cannot be called with a prompt and a response" in missing.detail


async def test_several_processes_work_at_once(grader_of) -> None:
    grader = grader_of("length", workers=2)
    answers = await asyncio.gather(*(grader.grade([sample(number)]) for number in range(6)))
    assert [each.envelope.seq for (each,) in answers] == list(range(6))
    assert len(grader._idle) == 2
