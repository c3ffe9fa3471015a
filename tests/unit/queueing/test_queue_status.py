"""What queue statuses say about a snapshot."""

from typing import Any

from msgspec.structs import replace
from support.scheduling_world import GPU, job, queue, running, world

from clusterops.queueing.queue_status import Census, cluster_queue_status, local_queue_status
from clusterops.scheduling.objects import Condition, LocalQueue, Quota

AT: Any = {"generation": 1, "now": 1000.0}


def test_a_cluster_queue_counts_those_who_wait_hold_and_run() -> None:
    checking = replace(running("checking", 2), conditions={"QuotaReserved": Condition(True)})
    where = world(
        [queue("cq", Quota(4), cohort="co"), queue("y", 4, cohort="co")],
        [
            running("r", 5),
            checking,
            job("waits"),
            job("gated", gates="g"),
            job("off", active=False),
            job("held", conditions={"QuotaReserved": Condition(False, "OnHold")}),
            job("backs-off", requeue_at=1e9),
            job("elsewhere", queue="y"),
        ],
    )
    status = cluster_queue_status(Census(where), where.queues["cq"], {}, **AT)
    assert status["pendingWorkloads"] == 2
    assert status["reservingWorkloads"] == 2
    assert status["admittedWorkloads"] == 1
    assert status["flavorsReservation"] == [
        {"name": "default", "resources": [{"name": GPU, "total": "7", "borrowed": "3"}]}
    ]
    assert status["flavorsUsage"][0]["resources"][0]["total"] == "5"


def test_a_status_that_says_the_same_is_equal_to_the_one_before() -> None:
    where = world([queue()], [running("r", 5)])
    before = cluster_queue_status(Census(where), where.queues["cq"], {}, **AT)
    again = cluster_queue_status(Census(where), where.queues["cq"], before, generation=1, now=2e3)
    assert again == before


def test_fields_of_others_are_kept() -> None:
    where = world([queue()], [])
    status = cluster_queue_status(
        Census(where), where.queues["cq"], {"fairSharing": {"weightedShare": 3}}, **AT
    )
    assert status["fairSharing"] == {"weightedShare": 3}


def test_an_inactive_queue_says_why() -> None:
    where = world([queue(stop="Hold", admission_checks=("c",))], [], flavors=())
    (active,) = cluster_queue_status(Census(where), where.queues["cq"], {}, **AT)["conditions"]
    assert (active["status"], active["reason"]) == ("False", "Stopped")
    assert active["message"] == (
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): default, "
        "references missing AdmissionCheck(s): c."
    )


def test_a_local_queue_counts_its_own_only() -> None:
    doors = [LocalQueue("ns", "cq", "cq"), LocalQueue("ns", "second", "cq")]
    where = world(
        [queue()],
        [running("a", 2), job("b"), job("c", queue="second")],
        local_queues=doors,
    )
    first = local_queue_status(Census(where), doors[0], {}, **AT)
    second = local_queue_status(Census(where), doors[1], {}, **AT)
    assert (first["admittedWorkloads"], first["pendingWorkloads"]) == (1, 1)
    assert (second["admittedWorkloads"], second["pendingWorkloads"]) == (0, 1)
    assert second["flavorsUsage"][0]["resources"] == [{"name": GPU, "total": "0"}]


def test_a_local_queue_to_nowhere_says_so() -> None:
    door = LocalQueue("ns", "lost", "gone")
    where = world([], [], local_queues=[door])
    (active,) = local_queue_status(Census(where), door, {}, **AT)["conditions"]
    assert active["reason"] == "ClusterQueueDoesNotExist"
