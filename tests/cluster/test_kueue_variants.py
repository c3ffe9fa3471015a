"""Kueue configured otherwise: start time-outs of seconds, fair sharing, and without priority boosts.

One control plane of its own, whose Kueue is started anew with each configuration.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.controlplane import ControlPlane
from support.controlplane_kueue import Kueue, KueueOptions
from support.controlplane_tenant import Tenant, condition
from support.controlplane_workloads import Workloads, now

from clusterops.api import names
from clusterops.core import workload as writes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SOON = {
    "timeout": "3s",
    "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffLimitCount": 1},
}
FAIR = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}


@dataclass
class Variants:
    """A control plane and the Kueue in it."""

    plane: ControlPlane
    kueue: Kueue

    def workloads(self, folder: Path, **queue: Any) -> Workloads:
        """Of a new tenant."""
        return Workloads(Tenant(self.plane, folder, **queue))


@pytest.fixture(scope="module")
def variants(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Variants]:
    with ControlPlane(tmp_path_factory.mktemp("plane"), binaries) as plane:
        kueue = Kueue(plane)
        kueue.install()
        try:
            yield Variants(plane, kueue)
        finally:
            kueue.stop()


def test_a_start_that_takes_too_long_ends_in_deactivation_at_the_limit(
    variants: Variants, tmp_path: Path
) -> None:
    variants.kueue.restart_with(KueueOptions(settings={"waitForPodsReady": SOON}))
    workloads = variants.workloads(tmp_path)
    workloads.create("a", gpus=4)
    workloads.until_admitted("a")
    workloads.until_evicted("a", "PodsReadyTimeout")
    assert workloads.get("a")["status"].get("admission"), "its owner has not released it yet"
    workloads.release("a")
    # Kueue ends its own back-off, and the second time is one too many.
    workloads.until(lambda: workloads.is_("a", "Requeued", "BackoffFinished"), "the back-off's end")
    workloads.until_evicted("a", "DeactivatedDueToRequeuingLimitExceeded")
    assert workloads.get("a")["spec"]["active"] is False


def test_pods_that_became_ready_in_time_are_left_alone(variants: Variants, tmp_path: Path) -> None:
    variants.kueue.restart_with(KueueOptions(settings={"waitForPodsReady": {"timeout": "20s"}}))
    workloads = variants.workloads(tmp_path)
    workloads.create("ready", gpus=1)
    workloads.create("late", gpus=1)
    workloads.until_admitted("ready", "late")
    workloads.write("ready", lambda raw: writes.pods_ready_status(raw, now()))
    workloads.until_evicted("late", "PodsReadyTimeout")
    assert workloads.admitted("ready")
    assert not workloads.is_("ready", "Evicted")


def test_with_fair_sharing_a_lower_priority_takes_back_its_share(
    variants: Variants, tmp_path: Path
) -> None:
    variants.kueue.restart_with(KueueOptions(settings={"fairSharing": FAIR}))
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    one = Tenant(variants.plane, tmp_path / "one")
    cohort = {"cohortName": f"cohort-{one.suffix}", "preemption": preemption}
    two = Tenant(variants.plane, tmp_path / "two", gpus=0)
    headers = {"Content-Type": "application/merge-patch+json"}
    for tenant in (one, two):
        group = one.group(4)
        path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{tenant.cluster_queue}"
        spec = {**cohort, "resourceGroups": [group]}
        variants.plane.send("PATCH", path, {"spec": spec}, headers=headers)
    borrower, owner = Workloads(one), Workloads(two)
    for number in range(2):
        borrower.create(f"w{number}", gpus=4, priority=3000)
        borrower.until_admitted(f"w{number}")
    owner.create("mine", gpus=4, priority=500)
    borrower.until_evicted("w1")
    preempted = condition(borrower.get("w1"), "Preempted")
    assert preempted["reason"] in ("InCohortReclamation", "InCohortFairSharing")


def test_without_the_gate_boosts_are_words_without_effect(
    variants: Variants, tmp_path: Path
) -> None:
    variants.kueue.restart_with(KueueOptions(gates={}))
    workloads = variants.workloads(tmp_path)
    boost = {names.KUEUE_ANNOTATION_PRIORITY_BOOST: "500"}
    workloads.create("older", gpus=2)
    workloads.until_admitted("older")
    workloads.create("newer", gpus=2, annotations=boost)
    workloads.until_admitted("newer")
    workloads.create("high", gpus=2, priority=1000)
    workloads.until_evicted("newer")
    junk = {"metadata": {"annotations": {names.KUEUE_ANNOTATION_PRIORITY_BOOST: "junk"}}}
    assert workloads.patch("older", junk).status == 200
