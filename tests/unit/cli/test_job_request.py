"""A job from the words of a command line."""

import pytest

from clusterops.api.training_job import TrainingJob
from clusterops.api.validation import problems
from clusterops.cli.errors import CommandError
from clusterops.cli.job_request import Request, generated_name, job_of


def test_the_smallest_request_is_a_valid_job() -> None:
    job = job_of(Request(["python", "train.py"], queue="research"), "team")
    assert problems(TrainingJob, job) == ()
    assert job["metadata"]["namespace"] == "team"
    assert "checkpoint" not in job["spec"]
    assert "resources" not in job["spec"]["template"]["spec"]["containers"][0]


def test_every_option_finds_its_place() -> None:
    request = Request(
        ["torchrun", "train.py"],
        name="llm",
        replicas=2,
        gpus=4,
        queue="research",
        priority="high",
        environment=["A=1", "B=x=y", "C="],
        image="trainer:1",
        checkpoints="kept",
        working_directory="/src",
        grace_seconds=30,
    )
    job = job_of(request, "research")
    assert problems(TrainingJob, job) == ()
    assert TrainingJob.from_wire(job).gpus == 8
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "trainer:1"
    assert container["workingDir"] == "/src"
    assert [each["value"] for each in container["env"]] == ["1", "x=y", ""]
    assert job["spec"]["priorityClassName"] == "high"
    assert job["spec"]["checkpoint"] == {
        "directory": "/checkpoints/llm",
        "gracePeriodSeconds": 30,
    }


@pytest.mark.parametrize("word", ["A", "=1", ""])
def test_a_variable_needs_a_name_and_a_value(word: str) -> None:
    with pytest.raises(CommandError, match="NAME=VALUE"):
        job_of(Request(["x"], queue="q", environment=[word]), "n")


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "train_llm.py", "--steps", "3"], "train-llm-"),
        (["python3.11", "-m", "pkg.examples.char_lm"], "char-lm-"),
        (["/opt/bin/run.sh"], "run-"),
        (["python"], "python-"),
        (["7zip"], "job-7zip-"),
        (["_"], "job-"),
        (["x" * 200], "x" * 30 + "-"),
    ],
)
def test_a_generated_name_tells_what_runs(command: list[str], stem: str) -> None:
    name = generated_name(command, 1)
    assert name.startswith(stem)
    job = job_of(Request(command, name=name, queue="q"), "n")
    assert problems(TrainingJob, job) == ()
    assert generated_name(command, 1) != generated_name(command, 1)
