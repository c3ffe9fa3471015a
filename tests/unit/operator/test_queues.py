"""What a job is told of its queue."""

from typing import Any

from support.operator_builders import TEMPLATE, job

from clusterops.api import names
from clusterops.operator.queues import Queues
from clusterops.scheduling import parse


def queues(*, stop: str = "None", cohort: str = "", local_stop: str = "None") -> Queues:
    def cluster(name: str, quota: int, **spec: Any) -> Any:
        resource = {"name": names.RESOURCE_GPU, "nominalQuota": quota}
        flavors = [{"name": flavor, "resources": [resource]} for flavor in ("h100", "a100")]
        group = {"coveredResources": [names.RESOURCE_GPU], "flavors": flavors}
        return parse.cluster_queue(
            {"metadata": {"name": name}, "spec": {"resourceGroups": [group], **spec}}
        )

    local = {
        "metadata": {"namespace": "research", "name": "research"},
        "spec": {"clusterQueue": "cq", "stopPolicy": local_stop},
    }
    members = {"cohortName": cohort} if cohort else {}
    return Queues(
        [parse.local_queue(local)],
        [cluster("cq", 3, stopPolicy=stop, **members), cluster("other", 5, **members)],
        [],
    )


def test_a_job_larger_than_any_flavor_of_its_queue_never_fits() -> None:
    view = queues().view(job())
    assert view.found
    assert view.never_fits == "it asks for 4 nvidia.com/gpu, ClusterQueue cq can have at most 3"


def test_a_cohort_lends_and_an_elastic_job_may_start_smaller() -> None:
    assert queues(cohort="all").view(job()).never_fits == ""
    assert queues().view(job(min_replicas=1)).never_fits == ""
    assert queues(cohort="all").view(job(replicas=5)).never_fits.endswith("at most 8")


def test_queues_that_do_not_exist_are_named() -> None:
    assert "nowhere" in queues().view(job(queue_name="nowhere")).missing
    local = {
        "metadata": {"namespace": "research", "name": "research"},
        "spec": {"clusterQueue": "gone"},
    }
    view = Queues([parse.local_queue(local)], [], []).view(job())
    assert not view.found
    assert "gone" in view.missing


def test_a_stopped_queue_says_which_one_it_is() -> None:
    assert queues(stop="Hold").view(job()).stopped == "ClusterQueue cq has stopPolicy Hold"
    assert "LocalQueue research" in queues(local_stop="HoldAndDrain").view(job()).stopped
    assert queues().view(job()).stopped == ""


def test_a_request_that_is_no_quantity_never_fits() -> None:
    container = {"name": "c", "resources": {"limits": {names.RESOURCE_GPU: "many"}}}
    bad = {**TEMPLATE, "spec": {"containers": [container]}}
    assert "many" in queues().view(job(template=bad)).never_fits
