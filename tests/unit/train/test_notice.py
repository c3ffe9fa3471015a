"""The notice board, the signal, and sessions under a real operator over HTTPS."""

import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.train_jobs import Crash, Walk, walk
from support.train_operator import TOKEN, Operator, asking, calm

from clusterops import train
from clusterops.api.heartbeat import SaveRequest
from clusterops.train.disk import PosixDisk
from clusterops.train.notice import SIGNAL_ID, NoticeBoard, TerminationSignal
from clusterops.train.reader import survey

# The board.


def request(identity: str = "a", *, then_exit: bool = False) -> SaveRequest:
    return SaveRequest(identity, "because", 30.0, then_exit)


def test_a_request_is_served_once_however_often_it_is_repeated() -> None:
    board = NoticeBoard(clock=lambda: 100.0)
    board.answered(request())
    pending = board.pending()
    assert pending is not None
    assert pending.deadline == 130.0
    board.served(["a"])
    board.answered(request())
    assert board.pending() is None
    board.answered(request("b"))
    assert board.pending() is not None


def test_a_request_that_arrives_after_another_rank_served_it_is_not_served_again() -> None:
    board = NoticeBoard()
    board.served(["a"])
    board.answered(request())
    assert board.pending() is None


def test_the_operator_may_take_a_request_back() -> None:
    board = NoticeBoard()
    board.answered(request(then_exit=True))
    board.answered(None)
    assert board.pending() is None


def test_a_signal_is_not_taken_back() -> None:
    board = NoticeBoard()
    board.terminated()
    board.answered(None)
    board.served([SIGNAL_ID])
    pending = board.pending()
    assert pending is not None
    assert pending.then_exit


def test_outside_of_the_main_thread_no_signal_is_watched() -> None:
    outcome: list[bool] = []
    watch = TerminationSignal(NoticeBoard())
    thread = threading.Thread(target=lambda: outcome.append(watch.install()))
    thread.start()
    thread.join(10)
    assert outcome == [False]
    watch.restore()


# Sessions under an operator.


def until(condition: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def train_until(
    folder: Path | None,
    stop: Callable[[train.Session], bool],
    *,
    at_step: Callable[[train.Session], None] = lambda _: None,
) -> tuple[Walk, train.Session]:
    """Steps of some milliseconds until the condition holds; at most for 30 s."""
    job = Walk()
    deadline = time.monotonic() + 30
    random.seed(3)
    with train.session(checkpoint_dir=folder, save_every_steps=10**9) as run:
        run.resume(job=job)
        for _ in run.steps():
            job.step()
            at_step(run)
            run.report()
            if stop(run):
                run.finish()
            assert time.monotonic() < deadline, "the session did not come to its end"
            time.sleep(0.002)
    return job, run


def test_the_first_report_names_the_step_that_the_attempt_resumed_at(
    operator: Operator, tmp_path: Path
) -> None:
    walk(tmp_path / "job", total=5)
    operator.reports.clear()
    with train.session(total_steps=9, checkpoint_dir=tmp_path / "job") as run:
        run.resume(job=Walk())
        operator.wait_for(lambda report: report["durable"] is not None)
        for _ in run.steps():
            run.report()
    assert operator.reports[0]["step"] == 5, "counted as steps of this attempt, it would be wrong"


def test_a_session_that_fails_before_it_resumes_reports_nothing(operator: Operator) -> None:
    with pytest.raises(Crash), train.session(total_steps=5):
        raise Crash
    assert operator.reports == []


def test_each_report_carries_attempt_rank_step_token_and_at_last_finished(
    operator: Operator, tmp_path: Path
) -> None:
    _, run = train_until(tmp_path / "c", lambda run: run.step >= 5)
    last = operator.reports[-1]
    assert last["finished"] is True
    assert last["step"] == run.step
    assert last["durable"]["step"] == run.step
    assert len(last["durable"]["manifestSha256"]) == 64
    assert (last["attempt"], last["rank"]) == (1, 0)
    assert set(operator.tokens) == {f"Bearer {TOKEN}"}
    assert not any(report["finished"] for report in operator.reports[:-1])


def test_save_then_go_on(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    operator.answer = asking(then_exit=False)
    seen: list[int] = []

    def note(run: train.Session) -> None:
        if run.durable_step is not None and not seen:
            seen.append(run.durable_step)

    _, run = train_until(folder, lambda run: bool(seen) and run.step >= seen[0] + 30, at_step=note)
    operator.wait_for(lambda report: (report["durable"] or {}).get("step") == seen[0])
    steps = [one.manifest.step for one in survey(PosixDisk(), folder)[0]]
    assert steps == [run.step, seen[0]], "the same request was served more than once"


def test_save_then_leave(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "c"

    def preempt(run: train.Session) -> None:
        if run.step == 3:
            operator.answer = asking(then_exit=True)

    with pytest.raises(train.Leave, match="preempted by urgent") as left:
        train_until(folder, lambda _: False, at_step=preempt)
    assert left.value.code == 143
    last = operator.reports[-1]
    assert last["finished"] is False
    assert last["durable"]["step"] == last["step"] > 3
    operator.answer = calm
    resumed, run = train_until(folder, lambda run: run.step >= last["step"] + 5)
    undisturbed, _ = walk(None, total=run.step)
    assert resumed.trail == undisturbed.trail


def test_the_sha_that_is_reported_is_that_of_the_manifest(
    operator: Operator, tmp_path: Path
) -> None:
    import hashlib

    folder = tmp_path / "c"
    _, run = train_until(folder, lambda run: run.step >= 2)
    content = (folder / f"step_{run.step:08d}" / "manifest.json").read_bytes()
    assert operator.reports[-1]["durable"]["manifestSha256"] == hashlib.sha256(content).hexdigest()


def test_a_stale_attempt_stops_and_commits_nothing(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    operator.answer = lambda _: (409, {"error": "stale"}, {})
    with pytest.raises(train.StaleAttempt, match="newer attempt"):
        train_until(folder, lambda _: False)
    assert survey(PosixDisk(), folder)[0] == []


def test_an_operator_that_does_not_lead_is_asked_again_after_the_time_it_says(
    operator: Operator, tmp_path: Path
) -> None:
    answered: list[float] = []

    def not_leading(report: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        answered.append(time.monotonic())
        if len(answered) < 3:
            return 503, {}, {"Retry-After": "0.2"}
        return asking(then_exit=True)(report)

    operator.answer = not_leading
    with pytest.raises(train.Leave):
        train_until(tmp_path / "c", lambda _: False)
    assert all(b - a >= 0.2 for a, b in pairwise(answered[:3]))


@pytest.mark.parametrize("answer", [(500, {}, {}), (401, {}, {}), (200, {"no": "interval"}, {})])
def test_an_operator_that_answers_nonsense_does_not_stop_training(
    operator: Operator, tmp_path: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterops.train.sessions._LAST_REPORT_SECONDS", 0.2)
    operator.answer = lambda _: answer
    _, run = train_until(tmp_path / "c", lambda run: len(operator.reports) > 0 and run.step > 5)
    assert run.finished


def test_an_operator_that_cannot_be_reached_does_not_stop_training(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterops.train.sessions._LAST_REPORT_SECONDS", 0.2)
    operator.close()
    _, run = train_until(tmp_path / "c", lambda run: run.step > 20)
    assert run.finished
    assert run.durable_step == run.step


def test_a_restarted_operator_is_found_again_with_a_rotated_token(
    operator: Operator, tmp_path: Path
) -> None:
    def rotate(run: train.Session) -> None:
        if run.step == 2:
            operator.token_file.write_text("another token")

    train_until(tmp_path / "c", lambda _: "Bearer another token" in operator.tokens, at_step=rotate)


def test_a_server_that_the_ca_does_not_vouch_for_gets_no_token(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = Operator(other)
    try:
        monkeypatch.setattr("clusterops.train.sessions._LAST_REPORT_SECONDS", 0.2)
        monkeypatch.setenv("CLUSTEROPS_AGENT_URL", stranger.url)
        _, run = train_until(tmp_path / "c", lambda run: run.step > 20)
        assert run.finished
        assert stranger.tokens == []
    finally:
        stranger.close()


def test_a_notice_inside_a_section_is_served_there(operator: Operator, tmp_path: Path) -> None:
    def evaluate(run: train.Session) -> bool:
        if run.step == 2:
            operator.answer = asking(then_exit=True)
            with run.section("eval") as section:
                deadline = time.monotonic() + 30
                while time.monotonic() < deadline:
                    section.poll()
                    time.sleep(0.002)
            pytest.fail("the section was never left")
        return False

    with pytest.raises(train.Leave):
        train_until(tmp_path / "c", evaluate)  # after `report`
    assert operator.reports[-1]["durable"]["step"] == 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CLUSTEROPS_AGENT_URL", "http://127.0.0.1:1"),
        ("CLUSTEROPS_AGENT_URL", "https://[bad"),
        ("CLUSTEROPS_ATTEMPT", "one"),
        ("RANK", "-1"),
    ],
)
def test_an_impossible_environment_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(train.ConfigurationError, match=variable):
        train.session()
