"""Who is to blame when an attempt ends."""

import pytest
from support.operator_builders import condition, node, pod

from clusterops.api.reasons import Cause
from clusterops.core import exits
from clusterops.core.observed import Observed

NODES = Observed(nodes={"n0": node()})


@pytest.mark.parametrize(
    ("failed", "cause"),
    [
        (pod(0, "Failed", exit_code=1), Cause.USER_ERROR),
        (pod(0, "Failed", exit_code=137, reason="OOMKilled"), Cause.USER_ERROR),
        (pod(0, "Failed", exit_code=exits.EXIT_PORT_TAKEN), Cause.START_FAILED),
        (pod(0, "Failed", exit_code=128, reason="StartError"), Cause.START_FAILED),
        (pod(0, "Failed", exit_code=127, reason="StartError"), Cause.USER_ERROR),
        (pod(0, "Failed", exit_code=126, reason="ContainerCannotRun"), Cause.USER_ERROR),
        (pod(0, "Failed", reason="UnexpectedAdmissionError"), Cause.START_FAILED),
        (pod(0, "Failed", reason="Evicted"), Cause.EVICTED),
        (pod(0, "Failed", reason="NodeLost"), Cause.NODE_LOST),
        (pod(0, "Failed", exit_code=1, deleting=True), Cause.EVICTED),
        (
            pod(0, "Failed", exit_code=143, conditions=(condition("DisruptionTarget"),)),
            Cause.EVICTED,
        ),
    ],
)
def test_each_way_to_fail_has_its_cause(failed: object, cause: Cause) -> None:
    found = exits.first_failure((failed, pod(1)), NODES)
    assert found is not None
    assert found.cause is cause
    assert "rank 0" in found.message


def test_the_earliest_failure_is_blamed_not_the_peers_that_followed() -> None:
    pods = (
        pod(0, "Failed", exit_code=134, ended_ago=2),
        pod(1, "Failed", exit_code=9, ended_ago=8),
    )
    found = exits.first_failure(pods, NODES)
    assert found is not None
    assert "rank 1 on n0 exited with code 9" in found.message


def test_a_failure_on_a_node_with_a_health_fault_is_the_nodes() -> None:
    view = Observed(nodes={"n0": node(faulty=True)})
    found = exits.first_failure((pod(0, "Failed", exit_code=1),), view)
    assert found is not None
    assert found.cause is Cause.NODE_FAULT


def test_a_rank_that_fails_while_its_peers_node_is_silent_is_not_the_users_error() -> None:
    view = Observed(nodes={"n0": node(), "n1": node("n1", unready_for=2)})
    found = exits.first_failure((pod(0, "Failed", exit_code=1), pod(1, node="n1")), view)
    assert found is not None
    assert found.cause is Cause.NODE_LOST
    assert "n1" in found.message


def test_completion_needs_every_rank() -> None:
    done = pod(0, "Succeeded", exit_code=0)
    assert exits.all_succeeded((done, pod(1, "Succeeded", exit_code=0)), 2)
    assert not exits.all_succeeded((done,), 2)
    assert not exits.all_succeeded((done, pod(1)), 2)
    assert not exits.all_succeeded((done, done), 2)


def test_a_refused_image_is_a_failed_start() -> None:
    found = exits.cannot_start((pod(0, "Pending", waiting="ImagePullBackOff"),))
    assert found is not None
    assert found.cause is Cause.START_FAILED
    assert "ImagePullBackOff: not found" in found.message
    assert exits.cannot_start((pod(0, "Pending", waiting="ContainerCreating"),)) is None
