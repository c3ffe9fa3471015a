"""Own writes count at once, and no longer than until the watch has caught up."""

from typing import Any

import pytest

from clusterops.kube.client import Client
from clusterops.queueing.observed import Observed, SeenQueue, see
from clusterops.scheduling import parse

KEY = ("ns", "w")


class NoTransport:
    """Nothing is sent in these tests."""


class Heard:
    """An `Observed` without reflectors running, and what it told."""

    def __init__(self) -> None:
        self.workloads: list[Any] = []
        self.configuration = 0
        self.observed = Observed(
            Client(NoTransport()),  # type: ignore[arg-type] - never asked
            workload_changed=self.workloads.append,
            configuration_changed=self._count,
        )

    def _count(self) -> None:
        self.configuration += 1


def raw(version: int, *, uid: str = "u", priority: int = 0) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "ns",
            "name": "w",
            "uid": uid,
            "resourceVersion": str(version),
        },
        "spec": {"priority": priority, "podSets": []},
    }


def put(observed: Observed, obj: dict[str, Any]) -> None:
    """What a reflector does with an event."""
    observed.workloads.put(KEY, see(obj))
    observed._settle(KEY)


def priority(observed: Observed) -> int:
    seen = observed.workload(KEY)
    assert seen is not None
    return seen.workload.priority


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_an_own_write_stands_in_until_the_watch_brings_it(heard: Heard) -> None:
    put(heard.observed, raw(5))
    heard.observed.written(raw(9, priority=1))
    assert priority(heard.observed) == 1
    put(heard.observed, raw(7, priority=7))
    assert priority(heard.observed) == 1, "an older event must not undo the own write"
    put(heard.observed, raw(10, priority=2))
    assert priority(heard.observed) == 2


def test_a_watch_that_was_faster_than_the_answer_wins(heard: Heard) -> None:
    put(heard.observed, raw(12, priority=3))
    heard.observed.written(raw(9, priority=1))
    assert priority(heard.observed) == 3


def test_a_deleted_workload_is_gone_though_written(heard: Heard) -> None:
    put(heard.observed, raw(5))
    heard.observed.written(raw(9))
    heard.observed.workloads.remove(KEY)
    assert heard.observed.workload(KEY) is None
    assert list(heard.observed.all_workloads()) == []


def test_a_workload_made_anew_under_the_same_name_is_another(heard: Heard) -> None:
    put(heard.observed, raw(5))
    heard.observed.written(raw(99, priority=1))
    put(heard.observed, raw(6, uid="other", priority=4))
    assert priority(heard.observed) == 4


def test_a_status_of_a_queue_is_no_change_of_configuration(heard: Heard) -> None:
    obj = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": []}}
    queues = heard.observed.cluster_queues
    queues.put(("", "cq"), SeenQueue(obj, parse.cluster_queue(obj)))
    assert heard.configuration == 1
    before = heard.observed.configuration()
    written = {**obj, "status": {"pendingWorkloads": 3}}
    queues.put(("", "cq"), SeenQueue(written, parse.cluster_queue(written)))
    assert heard.configuration == 1
    assert heard.observed.configuration() is before
    stopped = {**obj, "spec": {"stopPolicy": "Hold"}}
    queues.put(("", "cq"), SeenQueue(stopped, parse.cluster_queue(stopped)))
    assert heard.configuration == 2
    assert heard.observed.configuration().queues["cq"].stop == "Hold"
