"""What somebody who waits for a job is told about its attempts."""

from support.operator_builders import pod

from clusterops.cli import attempt_lines
from clusterops.core import exits

NOW = "2026-11-30T19:00:00Z"


def job(namespace: str = "research", **status: object) -> dict:
    return {"metadata": {"name": "llm", "namespace": namespace}, "status": status}


def attempt(number: int, cause: str = "", message: str = "", **fields: object) -> dict:
    ended = {"endedAt": NOW, "cause": cause, "message": message} if cause else {}
    return {"number": number, "startedAt": NOW, "nodes": ["n0", "n0", "n1"], **ended, **fields}


WAITING = job(phase="Pending", reason="WaitingForQuota", attempt=0)
RUNNING = job(phase="Running", attempt=1, attempts=[attempt(1)])
WORDS = "rank 1 on n1 exited with code 3"
FAILED_ONCE = job(
    phase="Requeued",
    reason="BackingOff",
    attempt=1,
    backoffUntil="2026-11-30T19:00:10Z",
    attempts=[attempt(1, "UserError", WORDS, lostSteps=7)],
)


def told(before: dict | None, after: dict) -> list[str]:
    return attempt_lines.told(before, after, namespace="research")


def test_each_change_is_one_line_and_none_is_told_twice() -> None:
    assert told(None, WAITING) == ["Pending, not enough free quota in its queue"]
    assert told(WAITING, RUNNING) == ["attempt 1 runs on n0, n1"]
    assert told(RUNNING, RUNNING) == []
    further = job(phase="Running", attempt=1, attempts=[attempt(1)], progress={"step": 9})
    assert told(RUNNING, further) == []


def test_a_failed_attempt_names_its_cause_and_the_command_for_its_log() -> None:
    assert told(RUNNING, FAILED_ONCE) == [
        f"attempt 1 ended (UserError, 7 steps lost): {WORDS}; "
        "its log: clusterops logs llm --rank 1 --attempt 1",
        "Requeued, attempt 2 begins after 2026-11-30 19:00:10 UTC",
    ]


def test_attempts_that_came_and_went_between_two_looks_are_told_all() -> None:
    later = job(
        phase="Failed",
        reason="UserError",
        message=WORDS,
        attempt=3,
        counts={"attempts": 3},
        attempts=[attempt(number, "UserError", WORDS) for number in (1, 2, 3)],
    )
    lines = told(RUNNING, later)
    ends = [line for line in lines if " ended (" in line]
    assert [line.split()[1] for line in ends] == ["1", "2", "3"]
    assert lines[-1] == f"Failed, the job's own process failed: {WORDS}, after 3 attempts"


def test_a_preempted_attempt_points_to_no_log() -> None:
    gone = job(
        phase="Requeued",
        reason="WaitingForQuota",
        attempt=1,
        attempts=[attempt(1, "Preempted", "urgent needs its GPUs", lostSteps=0)],
    )
    assert told(RUNNING, gone) == [
        "attempt 1 ended (Preempted, 0 steps lost): urgent needs its GPUs",
        "Requeued, it waits for its quota to begin attempt 2",
    ]


def test_who_begins_to_wait_late_hears_of_the_last_attempt_only() -> None:
    late = job(phase="Running", attempt=2, attempts=[attempt(1, "UserError", WORDS), attempt(2)])
    assert told(None, late) == ["attempt 2 runs on n0, n1"]


def test_the_rank_is_the_one_that_the_operator_blames() -> None:
    failed = pod(3, "Failed", exit_code=1, node="n2")
    blamed = exits.blame(failed, None)
    assert (
        attempt_lines.log_command(
            job("other"), {"number": 2, "message": blamed.message}, namespace="research"
        )
        == "clusterops logs llm -n other --rank 3 --attempt 2"
    )


def test_an_attempt_that_never_ran_left_no_log() -> None:
    never = {"number": 1, "endedAt": NOW, "cause": "StartFailed", "message": "rank 0: no image"}
    assert not attempt_lines.failed(never)
    assert attempt_lines.failed({**never, "startedAt": NOW})


def test_what_only_passes_by_is_not_told() -> None:
    admitted = job(phase="Admitted", reason="WaitingForPods", attempt=1)
    starting = job(phase="Starting", reason="WaitingForPods", message="0 of 2 ready", attempt=1)
    half = job(phase="Starting", reason="WaitingForPods", message="1 of 2 ready", attempt=1)
    assert told(WAITING, admitted) == []
    assert told(admitted, starting) == ["Starting, its pods are starting"]
    assert told(starting, half) == []
    assert told(None, job()) == [], "nobody has looked at it yet"
    failing = {"number": 1, "startedAt": NOW, "cause": "UserError", "message": WORDS}
    ending = job(phase="Checkpointing", reason="SavingBeforeRelease", attempt=1, attempts=[failing])
    assert told(RUNNING, ending) == [], "its end is told when it has come"
    leaving = {**failing, "cause": "Preempted"}
    saving = job(phase="Checkpointing", reason="SavingBeforeRelease", attempt=1, attempts=[leaving])
    assert told(RUNNING, saving) == ["Checkpointing, it is saving before it gives its GPUs back"]


def test_a_job_that_reports_no_steps_is_not_told_that_it_lost_none() -> None:
    silent = {
        "number": 1, "startedAt": "2026-11-30T19:00:00Z", "endedAt": "2026-11-30T19:02:15Z",
        "cause": "Evicted", "message": "its quota was taken away", "lostGpuSeconds": 135.0,
    }  # fmt: skip
    gone = job(phase="Requeued", reason="WaitingForQuota", attempt=1, attempts=[silent])
    assert told(RUNNING, gone)[0] == (
        "attempt 1 ended (Evicted, it does not report its steps: all 2m15s since its start count as "
        "lost): its quota was taken away"
    )


def test_a_job_that_its_queue_has_not_judged_is_not_said_to_lack_quota() -> None:
    new = job(phase="Pending", reason="Queued", attempt=0)
    assert told(None, new) == ["Pending, it is in its queue, which has not judged it yet"]
