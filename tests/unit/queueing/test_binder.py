"""What the binder reads of pods and nodes."""

from typing import Any

import pytest

from clusterops.queueing.binder import see_node, see_pod
from clusterops.queueing.placement import place
from clusterops.scheduling.objects import SelectorTerm, Taint

GPU = "nvidia.com/gpu"


def pod(*, status: Any = None, labels: Any = None, deleted: bool = False, **spec: Any) -> Any:
    metadata = {"namespace": "ns", "name": "p", "uid": "u", "labels": labels or {}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "resources": {"limits": {GPU: "2"}}}
    return {
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
        "status": status or {},
    }


def test_a_pod_without_a_node_waits() -> None:
    seen = see_pod(pod())
    assert seen.waits
    assert seen.demand.requests == {GPU: 2}


@pytest.mark.parametrize(
    "obj",
    [
        pod(nodeName="n"),
        pod(schedulerName="mine"),
        pod(schedulingGates=[{"name": "g"}]),
        pod(deleted=True),
        pod(status={"phase": "Failed"}),
    ],
)
def test_these_are_not_for_the_binder(obj: Any) -> None:
    assert not see_pod(obj).waits


def test_the_pods_of_an_attempt_are_a_gang_of_the_size_they_were_told() -> None:
    labels = {"clusterops.io/job": "j", "clusterops.io/attempt": "3"}
    env = [{"name": "CLUSTEROPS_PODS", "value": "4"}]
    seen = see_pod(pod(labels=labels, containers=[{"name": "c", "env": env}]))
    assert seen.demand.gang == ("ns", "j", "3")
    assert seen.size == 4


def test_a_pod_whose_requests_cannot_be_read_fits_nowhere() -> None:
    odd = pod(containers=[{"name": "c", "resources": {"limits": {GPU: "many"}}}])
    room = see_node({"metadata": {"name": "n"}, "status": {"allocatable": {GPU: "8"}}})
    bound, unplaced = place([room], [see_pod(odd).demand])
    assert (len(bound), len(unplaced)) == (0, 1)


def test_match_fields_pin_to_a_node() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    seen = see_pod(pod(affinity=affinity))
    assert seen.demand.selection.terms == (
        (SelectorTerm("kubernetes.io/hostname", "In", ("n2",)),),
    )


def test_a_node_is_ready_only_when_it_says_so() -> None:
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": {GPU: "8"}, "conditions": [ready]}
    spec = {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]}
    room = see_node({"metadata": {"name": "n"}, "spec": spec, "status": status})
    assert room.ready
    assert room.unschedulable
    assert room.taints == (Taint("k", "", "NoExecute"),)
    assert room.allocatable == {GPU: 8}
    assert not see_node({"metadata": {"name": "n"}}).ready
