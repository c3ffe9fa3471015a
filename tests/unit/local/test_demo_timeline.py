"""The story of the demo, folded from what was observed."""

from dataclasses import replace
from typing import Any

import pytest

from clusterops.local.demo.report import DemoReport, JobReport, rows
from clusterops.local.demo.timeline import Timeline


def job(phase: str, message: str = "", name: str = "low") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase, "message": message}}


def pod(name: str, gpus: int, start: str, end: str | None = None) -> dict[str, Any]:
    state: dict[str, Any] = (
        {"terminated": {"startedAt": start, "finishedAt": end}}
        if end
        else {"running": {"startedAt": start}}
    )
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
        "status": {"containerStatuses": [{"state": state}]},
    }


def test_each_change_of_phase_is_told_once_with_its_message():
    timeline = Timeline()
    assert [line.text for line in timeline.see_job(job("Pending", "no quota"), 1.0)] == [
        "Pending       no quota"
    ]
    assert timeline.see_job(job("Pending", "no quota"), 2.0) == []


def test_a_job_without_status_is_pending():
    timeline = Timeline()
    assert timeline.see_job({"metadata": {"name": "x"}}, 0.0)[0].text == "Pending"


def test_the_notice_lasts_from_checkpointing_to_the_next_phase_and_adds_up():
    timeline = Timeline()
    for phase, at in [
        ("Running", 1.0),
        ("Checkpointing", 5.0),
        ("Requeued", 5.75),
        ("Checkpointing", 9.0),
        ("Requeued", 9.25),
        ("Succeeded", 20.0),
    ]:
        timeline.see_job(job(phase), at)
    story = timeline.story("low")
    assert story.notice_seconds == pytest.approx(1.0)
    assert (story.outcome, story.finished_at) == ("Succeeded", 20.0)


def test_the_first_step_is_when_it_was_first_printed():
    timeline = Timeline()
    assert timeline.see_log("low", "loading", 1.0) == []
    timeline.see_log("low", "step 10/400 loss 3.1", 2.0)
    timeline.see_log("low", "step 20/400 loss 2.9", 3.0)
    story = timeline.story("low")
    assert (story.first_step_at, story.last_step) == (2.0, 20)


def test_peak_use_counts_a_gpu_given_back_and_taken_in_the_same_second_once():
    timeline = Timeline()
    timeline.see_pod(pod("low-1-0", 4, "2030-01-01T00:00:01Z", "2030-01-01T00:00:05Z"))
    timeline.see_pod(pod("low-1-1", 4, "2030-01-01T00:00:01Z", "2030-01-01T00:00:05Z"))
    timeline.see_pod(pod("high-1-0", 4, "2030-01-01T00:00:05Z"))
    assert timeline.peak_gpus() == 8


def test_peak_use_shows_an_overlap():
    timeline = Timeline()
    timeline.see_pod(pod("low-1-0", 8, "2030-01-01T00:00:01Z", "2030-01-01T00:00:06Z"))
    timeline.see_pod(pod("high-1-0", 4, "2030-01-01T00:00:05Z"))
    assert timeline.peak_gpus() == 12


GOOD = JobReport("low", "Succeeded", 2, 1, 0, 0.5, 2.0, "ab" * 32, "ab" * 32)


def report(*jobs: JobReport, peak: int = 8) -> DemoReport:
    return DemoReport(60.0, 1.5, peak, 8, jobs)


def test_a_good_run_has_no_problems():
    assert report(GOOD).problems() == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"outcome": "Failed"}, "ended as Failed"),
        ({"lost_steps": 3}, "lost 3 steps"),
        ({"weights_sha256": ""}, "other weights"),
        ({"undisturbed_sha256": "cd" * 32}, "other weights"),
        ({"preemptions": 0}, "nothing was preempted"),
    ],
)
def test_each_shortcoming_is_named(bad: dict[str, Any], problem: str):
    assert any(problem in found for found in report(replace(GOOD, **bad)).problems())


def test_the_report_file_has_the_names_that_others_read():
    written = report(GOOD).to_json()
    assert written["evictionToPreemptorFirstStepSeconds"] == 1.5
    assert set(written["jobs"][0]) >= {"name", "lostSteps", "weightsSha256", "undisturbedSha256"}


def test_holding_more_gpus_than_exist_is_a_problem():
    assert report(GOOD, peak=12).problems() == ["12 GPUs were held at once, 8 exist"]


def test_the_table_says_equal_only_when_it_is():
    assert rows(report(GOOD))[0][-1] == "yes"
