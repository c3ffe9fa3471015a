"""One job's whole life on the real thing: admitted by Kueue, preempted, saved, released, resumed."""

from pathlib import Path

import pytest
from support.controlplane_tenant import Tenant, condition, eventually
from support.counter_job import undisturbed_digest


@pytest.mark.timeout(240)
def test_a_preempted_job_saves_gives_way_and_goes_on_with_no_step_lost(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenant.add_node(gpus=4)
    tenant.submit("low", steps=150)
    tenant.until_saved("low")
    tenant.submit("high", steps=20, priority="high")
    tenant.until_phase("high", "Running", "Succeeded")
    # The real Kueue has chosen, and the operator released once the save was durable.
    first = tenant.status("low")["attempts"][0]
    assert first["cause"] == "Preempted"
    assert first["lostSteps"] == 0
    assert first["durableStep"] == first["lastStep"]
    tenant.until_phase("high", "Succeeded")
    done = tenant.until_phase("low", "Succeeded", seconds=120)
    assert done["counts"]["lostSteps"] == 0
    assert done["counts"]["preemptions"] == 1
    assert done["attempts"][1]["firstStep"] == first["durableStep"]
    eventually(
        lambda: condition(tenant.workload("low"), "Finished").get("reason") == "Succeeded",
        "its Workload to be finished",
    )
    assert tenant.result("low")["stateSha256"] == undisturbed_digest(tmp_path / "alone", 150)
