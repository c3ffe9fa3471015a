"""A job on a node whose fault was found: how long it may save, who is blamed, where it goes next."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.operator_builders import NOW, TEMPLATE, ago, ending, job, node, pod, report, running
from support.operator_builders import workload as admitted

from clusterops.api import names
from clusterops.api.reasons import Cause, Phase
from clusterops.core import actions, lifecycle, notice, pods
from clusterops.core.observed import Attempt, HealthWord, Observed, TrainingJob
from clusterops.core.observed_pods import Node
from clusterops.core.settings import Settings

SETTINGS = Settings()
ENDS = (actions.EndPod, actions.DeletePod)
REPORTS = (report(0, 90, 80), report(1, 90, 80))


def faulty(seconds: str | None, name: str = "n0") -> Node:
    found = node(name, faulty=True)
    told = {} if seconds is None else {names.ANNOTATION_NOTICE: seconds}
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, annotations=told)
    )


def seen(of: TrainingJob, *nodes: Node, **fields: Any) -> Observed:
    known = {"workload": admitted(of), "pods": (pod(0), pod(1, node="n1")), "reports": REPORTS}
    return Observed(**{**known, "nodes": {each.metadata.name: each for each in nodes}, **fields})


def written(of: TrainingJob, observed: Observed) -> actions.WriteStatus:
    (step,) = lifecycle.decide(of, observed, NOW, SETTINGS)
    assert isinstance(step, actions.WriteStatus), asdict(step)
    return step


@pytest.mark.parametrize(
    ("told", "seconds"), [("0", 0), ("30", 30), ("9999", 120), (None, 120), ("soon", 120)]
)
def test_the_window_is_what_the_fault_allows_and_no_longer_than_the_jobs_own(
    told: str | None, seconds: int
) -> None:
    of = job(running())
    after = written(of, seen(of, faulty(told), node("n1"))).status
    assert after.grace_deadline == NOW + timedelta(seconds=seconds)
    newest = after.attempts[-1]
    assert (newest.cause, newest.faulty_nodes) == (Cause.NODE_FAULT, ("n0",))


def test_without_time_to_save_all_ranks_are_ended_at_once_and_nothing_is_saved() -> None:
    of = job(ending(Cause.NODE_FAULT, 0))
    decided = lifecycle.decide(of, seen(of, faulty("0"), node("n1")), NOW, SETTINGS)
    ended = {step.name: step.grace_seconds for step in decided if isinstance(step, ENDS)}
    assert ended == {"a-1-0": 1, "a-1-1": 1}
    assert notice.save_request(of, NOW) is None


def test_with_time_to_save_the_ranks_are_asked_and_left_alone() -> None:
    of = job(ending(Cause.NODE_FAULT, 100))
    decided = lifecycle.decide(of, seen(of, faulty("120"), node("n1")), NOW, SETTINGS)
    assert not [step for step in decided if isinstance(step, ENDS)]
    request = notice.save_request(of, NOW)
    assert request is not None
    assert (request.remaining_seconds, request.then_exit) == (100, True)


def test_a_program_that_failed_before_the_fault_was_told_is_not_its_users_error() -> None:
    of = job(ending(Cause.USER_ERROR))
    ranks = (pod(0, "Failed", exit_code=1), pod(1, "Failed", exit_code=1, node="n1"))
    for left in (ranks, (ranks[0], pod(1, node="n1"))):
        newest = written(of, seen(of, faulty("0"), node("n1"), pods=left)).status.attempts[-1]
        assert (newest.cause, newest.faulty_nodes) == (Cause.NODE_FAULT, ("n0",))


FAILED = (pod(0, "Failed", exit_code=1, ended_ago=3.0), pod(1, "Failed", exit_code=1, node="n1"))
SETTLED = ago(3.0 - SETTINGS.fault_settle_seconds)


def decided(of: TrainingJob, **fields: Any) -> actions.Action:
    view = seen(of, node("n0"), node("n1"), **{"pods": FAILED, **fields})
    return lifecycle.decide(of, view, NOW, SETTINGS)[0]


@pytest.mark.parametrize("heard_at", [None, ago(60.0), SETTLED - timedelta(seconds=0.001)])
def test_until_its_node_has_spoken_a_failed_rank_is_not_its_users_error(heard_at: Any) -> None:
    of = job(ending(Cause.USER_ERROR, 0))
    assert isinstance(decided(of, words={"n0": HealthWord(heard_at)}), actions.Wake)


def test_a_node_that_says_it_is_well_leaves_the_error_with_the_user() -> None:
    of = job(ending(Cause.USER_ERROR, 0))
    assert isinstance(decided(of, words={"n0": HealthWord(SETTLED)}), actions.EvictWorkload)


def test_a_fault_that_the_budgets_leave_in_use_is_to_blame_all_the_same() -> None:
    of = job(ending(Cause.USER_ERROR, 0))
    step = decided(of, words={"n0": HealthWord(SETTLED, faulty=True)})
    assert isinstance(step, actions.WriteStatus)
    newest = step.status.attempts[-1]
    assert (newest.cause, newest.faulty_nodes) == (Cause.NODE_FAULT, ("n0",))


def test_a_job_does_not_start_again_before_its_node_is_tainted_unless_the_budgets_forbid_it() -> (
    None
):
    told = {"n0": HealthWord(SETTLED, faulty=True)}
    of = job(ending(Cause.NODE_FAULT, 0, faulty_nodes=("n0",)))
    assert isinstance(decided(of, words=told), actions.Wake)
    tainted = seen(of, faulty("0"), node("n1"), pods=FAILED, words=told)
    assert isinstance(lifecycle.decide(of, tainted, NOW, SETTINGS)[0], actions.EvictWorkload)
    late = job(ending(Cause.NODE_FAULT, -SETTINGS.taint_seconds, faulty_nodes=("n0",)))
    assert isinstance(decided(late, words=told), actions.EvictWorkload)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"words": {"n5": HealthWord()}},
        {"words": {"n0": HealthWord()}, "pods": (pod(0, "Failed"),)},
    ],
    ids=["nobody watches", "another node is watched", "nobody knows when it failed"],
)
def test_nobody_is_waited_for_in_vain(fields: dict[str, Any]) -> None:
    of = job(ending(Cause.USER_ERROR, 0))
    assert isinstance(decided(of, **fields), actions.EvictWorkload)


def test_a_dead_daemon_is_not_waited_for_for_ever() -> None:
    of = job(ending(Cause.USER_ERROR, -SETTINGS.fault_word_seconds))
    assert isinstance(decided(of, words={"n0": HealthWord()}), actions.EvictWorkload)


def test_a_job_without_gpus_cannot_have_lost_one() -> None:
    container = {"name": "train", "image": "trainer:1", "command": ["python", "train.py"]}
    of = job(ending(Cause.USER_ERROR, 0), template={"spec": {"containers": [container]}})
    assert isinstance(decided(of, words={"n0": HealthWord()}), actions.EvictWorkload)


def attempted(ended_before_seconds: float, **template: Any) -> dict[str, Any]:
    earlier = Attempt(
        1,
        ended_at=ago(110 + ended_before_seconds),
        cause=Cause.NODE_FAULT,
        faulty_nodes=("n0", "n7"),
    )
    status = running(attempt=2, attempts=(earlier, Attempt(2)), phase=Phase.ADMITTED)
    spec = {**TEMPLATE["spec"], **template}
    of = job(status, template={**TEMPLATE, "spec": spec})
    made = pods.desired_pod(of, seen(of), 2, 0, SETTINGS)
    return dict((made["spec"].get("affinity") or {}).get("nodeAffinity") or {})


def terms(affinity: dict[str, Any]) -> list[dict[str, Any]]:
    return list(affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"])


OTHERS = [
    {"key": "metadata.name", "operator": "NotIn", "values": ["n0"]},
    {"key": "metadata.name", "operator": "NotIn", "values": ["n7"]},
]
PREFERRED = [{"weight": 100, "preference": {"matchFields": OTHERS}}]


def test_the_next_attempt_prefers_others_to_the_nodes_whose_fault_ended_one() -> None:
    """A preference: where there is no other node, a proven one is better than none."""
    assert attempted(5) == {"preferredDuringSchedulingIgnoredDuringExecution": PREFERRED}
    assert attempted(5, tolerations=[{"key": "gpu", "operator": "Exists"}]) == attempted(5)


@pytest.mark.parametrize(
    "toleration", [{"operator": "Exists"}, {"key": names.TAINT_HEALTH, "operator": "Exists"}]
)
def test_a_template_that_tolerates_faults_is_kept_off_in_each_of_its_alternatives(
    toleration: dict[str, str],
) -> None:
    assert terms(attempted(5, tolerations=[toleration])) == [{"matchFields": OTHERS}]
    own = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("a", "b")]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}
    found = attempted(5, affinity={"nodeAffinity": required}, tolerations=[toleration])
    assert terms(found) == [{**each, "matchFields": OTHERS} for each in own]
    assert found["preferredDuringSchedulingIgnoredDuringExecution"] == PREFERRED


def test_after_a_while_the_job_may_go_back_there() -> None:
    assert attempted(SETTINGS.avoid_node_seconds) == {}
