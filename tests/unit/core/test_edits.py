"""What an edit of a running job says: that the attempt keeps what it began with."""

import copy
from typing import Any

import msgspec
import pytest
from support.operator_builders import NOW, TEMPLATE, condition, job, node, pod, running, workload

from clusterops.api import names
from clusterops.api.reasons import Phase
from clusterops.core import actions
from clusterops.core.lifecycle import decide
from clusterops.core.observed import Checkpoint, JobStatus, Observed, TrainingJob
from clusterops.core.observed_pods import Pod
from clusterops.core.pods import desired_pod
from clusterops.core.settings import Settings

SETTINGS = Settings(runtime="processes", agent_url="https://127.0.0.1:1")
BEFORE = job(running())


def bigger_template() -> dict[str, Any]:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["resources"]["limits"][names.RESOURCE_GPU] = "8"
    return template


def other_image() -> dict[str, Any]:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0]["image"] = "train:2"
    return template


def as_made(rank: int, of: TrainingJob) -> Pod:
    """A running pod with the annotations that the operator gives it."""
    made = desired_pod(of, Observed(), 1, rank, SETTINGS)["metadata"]["annotations"]
    found = pod(rank)
    metadata = msgspec.structs.replace(found.metadata, annotations=made)
    return msgspec.structs.replace(found, metadata=metadata)


def message_after(edited: TrainingJob, *pods: Pod) -> str:
    """What the status of a running job says once it was edited."""
    seen = Observed(
        nodes={"n0": node()},
        priority=1000,
        workload=workload(BEFORE, condition("PodsReady")),
        pods=pods or (as_made(0, BEFORE), as_made(1, BEFORE)),
    )
    found = decide(edited, seen, NOW, SETTINGS)
    after = [each.status for each in found if isinstance(each, actions.WriteStatus)]
    assert all(status.phase is Phase.RUNNING for status in after)
    last: JobStatus = after[-1] if after else edited.status
    return last.message


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"queue_name": "other"}, "queueName (still in research)"),
        ({"replicas": 4}, "replicas (still 2)"),
        ({"template": bigger_template()}, "GPUs of a pod (still 4 in all)"),
        ({"template": other_image()}, "the template"),
        ({"checkpoint": Checkpoint("/checkpoints/b", 120)}, "checkpoint.directory"),
        ({"checkpoint": Checkpoint(None, 120)}, "checkpoint.directory"),
    ],
)
def test_an_edit_that_the_running_attempt_does_not_take_up_is_said(
    spec: dict[str, Any], named: str
) -> None:
    message = message_after(job(running(), **spec))
    assert named in message
    assert message.startswith("edited since it began: ")
    assert message.endswith("takes effect at the next attempt")


def test_an_edit_that_is_taken_back_is_no_longer_said() -> None:
    edited = job(running(message=message_after(job(running(), replicas=4))))
    assert message_after(edited) == ""


@pytest.mark.parametrize(
    "spec",
    [{}, {"backoff_limit": 9}, {"checkpoint": Checkpoint("/checkpoints/a", 300)}],
)
def test_what_takes_effect_at_once_is_not_said(spec: dict[str, Any]) -> None:
    assert message_after(job(running(), **spec)) == ""


def test_pods_that_do_not_say_where_they_save_are_not_judged() -> None:
    edited = job(running(), checkpoint=Checkpoint("/checkpoints/b", 120))
    assert message_after(edited, pod(0), pod(1)) == ""
