"""Decisions about one pod, from snapshots: what is done next, and in which phase the pod is."""

import pytest

from clusterops.api import names
from clusterops.nodeagent import pod_lifecycle
from clusterops.nodeagent.admission import Failure, Rules
from clusterops.nodeagent.observation import Observed, Run, RunState, Waiting
from clusterops.nodeagent.pod_lifecycle import (
    Admit,
    Decision,
    Delete,
    EndLeftovers,
    Fail,
    Forget,
    Release,
    Start,
    Stop,
    decide,
    decide_orphan,
    final_phase,
)

RULES = Rules(None, 8)


def pod(*mains: str, init: tuple[str, ...] = (), policy: str = "Never", **fields) -> dict:
    spec = {
        "restartPolicy": policy,
        "containers": [{"name": name} for name in mains or ("main",)],
        "initContainers": [{"name": name} for name in init],
        **fields.pop("spec", {}),
    }
    metadata = {"name": "p", "namespace": "ns", "uid": "u", **fields.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, **fields}


def deleted(grace: int = 30) -> dict:
    return {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}


def running(attempt: int = 0, **fields) -> Run:
    return Run(attempt, RunState.RUNNING, **fields)


def ended(code: int = 0, attempt: int = 0, **fields) -> Run:
    return Run(attempt, RunState.EXITED, exit_code=code, ended_seconds_ago=0.0, **fields)


def seen(**runs: Run | tuple[Run, ...]) -> Observed:
    as_tuples = {name: run if isinstance(run, tuple) else (run,) for name, run in runs.items()}
    return Observed(admitted=True, runs=as_tuples)


def with_(observed: Observed, **fields) -> Observed:
    values = {name: getattr(observed, name) for name in Observed.__slots__}
    return Observed(**{**values, **fields})


def actions(pod: dict, observed: Observed) -> tuple:
    return decide(pod, observed, RULES).actions


def test_a_new_pod_is_admitted_before_anything_starts() -> None:
    assert actions(pod(), Observed()) == (Admit(),)
    assert actions(pod(), seen()) == (Start("main", 0),)


def test_a_pod_this_node_may_not_run_fails() -> None:
    [fail] = decide(pod(), Observed(), Rules(("other",), 8)).actions
    assert isinstance(fail, Fail)
    assert fail.failure.reason == "NotAllowed"


def test_a_new_pod_that_is_already_to_go_is_only_confirmed() -> None:
    assert actions(pod(metadata=deleted()), Observed()) == (Delete(),)


def test_a_pod_that_ended_before_we_knew_it_is_left_alone() -> None:
    assert actions(pod(status={"phase": "Failed"}), Observed()) == ()


@pytest.mark.parametrize("state", ["running", "terminated"])
def test_a_pod_that_ran_but_has_no_record_is_never_run_again(state) -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {state: {}}}]}
    [fail] = actions(pod(status=status), Observed())
    assert isinstance(fail, Fail)
    assert fail.failure.reason == pod_lifecycle.STATE_LOST


def test_init_containers_run_in_order_and_before_the_others() -> None:
    one = pod("a", "b", init=("i", "j"))
    assert actions(one, seen()) == (Start("i", 0),)
    assert actions(one, seen(i=running())) == ()
    assert actions(one, seen(i=ended())) == (Start("j", 0),)
    assert actions(one, seen(i=ended(), j=ended())) == (Start("a", 0), Start("b", 0))


def test_a_failed_init_container_fails_the_pod() -> None:
    one = pod(init=("i",))
    assert final_phase(one, seen(i=ended(1))) == "Failed"
    assert actions(one, seen(i=ended(1))) == (Release(),)


def test_a_failed_init_container_is_tried_again_by_policy() -> None:
    for policy in ("Always", "OnFailure"):
        assert actions(pod(init=("i",), policy=policy), seen(i=ended(1))) == (Start("i", 1),)


def test_a_prepared_run_is_started_under_its_own_number() -> None:
    assert actions(pod(), seen(main=Run(2, RunState.PREPARED))) == (Start("main", 2),)


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, None),
        ("Always", 0, None),
        ("Always", 1, None),
    ],
)
def test_the_end_of_the_only_container(policy, code, phase) -> None:
    one, observed = pod(policy=policy), seen(main=ended(code))
    assert final_phase(one, observed) == phase
    assert actions(one, observed) == ((Release(),) if phase else (Start("main", 1),))


def test_one_failed_container_among_several_fails_the_pod_when_all_are_done() -> None:
    one = pod("a", "b")
    assert final_phase(one, seen(a=ended(1), b=running())) is None
    assert final_phase(one, seen(a=ended(1), b=ended(0))) == "Failed"
    assert actions(one, seen(a=ended(1), b=running())) == ()


def test_a_released_pod_needs_nothing_more() -> None:
    assert actions(pod(), with_(seen(main=ended()), ended=True)) == ()
    final = pod(status={"phase": "Succeeded"})
    assert actions(final, with_(seen(main=ended()), ended=True)) == ()


def test_restarts_back_off_and_a_long_run_ends_the_back_off() -> None:
    def wait(*seconds: float) -> float:
        runs = tuple(ended(1, number, ran_seconds=ran) for number, ran in enumerate(seconds))
        return pod_lifecycle.back_off_seconds(runs)

    assert [wait(*[1.0] * number) for number in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert wait(1, 1, 1, 700) == 0
    assert wait(1, 1, 700, 1, 1) == 10


def test_a_restart_waits_for_the_rest_of_its_back_off() -> None:
    runs = (ended(1), Run(1, RunState.EXITED, exit_code=1, ended_seconds_ago=4.0))
    assert decide(pod(policy="Always"), seen(main=runs), RULES) == Decision((), 6.0)
    runs = (ended(1), Run(1, RunState.EXITED, exit_code=1, ended_seconds_ago=10.0))
    assert actions(pod(policy="Always"), seen(main=runs)) == (Start("main", 2),)


def test_deletion_sends_term_once_and_rechecks_after_the_kill() -> None:
    one = pod(metadata=deleted(30))
    assert decide(one, seen(main=running()), RULES) == Decision((Stop("main", 0, 30.0),), 40.1)
    stopping = seen(main=running(kill_in_seconds=12.0))
    assert decide(one, stopping, RULES) == Decision((), 22.1)


def test_a_second_deletion_shortens_the_grace_and_never_lengthens_it() -> None:
    stopping = seen(main=running(kill_in_seconds=12.0))
    assert actions(pod(metadata=deleted(5)), stopping) == (Stop("main", 0, 5.0),)
    assert actions(pod(metadata=deleted(60)), stopping) == ()


def test_deletion_stops_starts_and_abandons_what_was_prepared() -> None:
    one = pod("a", "b", metadata=deleted(3))
    assert actions(one, seen(a=Run(0, RunState.PREPARED))) == (Stop("a", 0, 3.0),)
    assert actions(one, seen()) == (Release(), Delete())


def test_a_deleted_pod_is_confirmed_once_all_has_ended() -> None:
    one = pod(metadata=deleted())
    assert actions(one, seen(main=ended(143))) == (Release(), Delete())
    assert final_phase(one, seen(main=ended(143))) == "Failed"
    assert final_phase(one, seen(main=ended(0))) == "Succeeded"
    released = with_(seen(main=ended(0)), ended=True)
    assert actions(one, released) == (Delete(),)


def test_the_deadline_ends_the_pod() -> None:
    one = pod(spec={"activeDeadlineSeconds": 100, "terminationGracePeriodSeconds": 7})
    young = with_(seen(main=running()), age_seconds=40.0)
    assert decide(one, young, RULES) == Decision((), 60.0)
    old = with_(young, age_seconds=100.0)
    [fail] = actions(one, old)
    assert isinstance(fail, Fail)
    assert fail.failure.reason == "DeadlineExceeded"
    failed = with_(old, failure=fail.failure)
    assert actions(one, failed) == (Stop("main", 0, 7.0),)
    assert final_phase(one, with_(failed, runs={"main": (ended(0),)})) == "Failed"


@pytest.mark.parametrize(("within", "grace"), [("3", 3.0), ("60", 60.0), ("soon", 7.0)])
def test_a_pod_that_is_ended_in_place_gets_as_long_as_its_end_names(within, grace) -> None:
    metadata = {"annotations": {names.ANNOTATION_ENDS_WITHIN: within}}
    spec = {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 7}
    one = pod(metadata=metadata, spec=spec)
    old = with_(seen(main=running()), age_seconds=100.0)
    [fail] = actions(one, old)
    assert fail.failure.message == f"Pod was told to end within {grace:g} s"
    assert actions(one, with_(old, failure=fail.failure)) == (Stop("main", 0, grace),)
    deleted_too = pod(metadata={**metadata, **deleted(grace=1)}, spec=spec)
    stopping = with_(old, failure=fail.failure)
    assert actions(deleted_too, stopping) == (Stop("main", 0, 1.0),), "deletion has the last word"


def test_a_pod_that_finished_in_time_keeps_its_success() -> None:
    one = pod(spec={"activeDeadlineSeconds": 100})
    late_look = with_(seen(main=ended(0)), age_seconds=500.0)
    assert actions(one, late_look) == (Release(),)
    assert final_phase(one, late_look) == "Succeeded"


def test_a_lost_supervisor_fails_a_pod_that_may_not_restart() -> None:
    fail, end = actions(pod(), seen(main=Run(0, RunState.LOST)))
    assert isinstance(fail, Fail)
    assert fail.failure.reason == pod_lifecycle.SUPERVISOR_LOST
    assert isinstance(end, EndLeftovers)


def test_after_a_reboot_the_reason_is_the_reboot() -> None:
    fail, _ = actions(pod(), seen(main=Run(0, RunState.LOST, rebooted=True)))
    assert isinstance(fail, Fail)
    assert fail.failure.reason == pod_lifecycle.NODE_REBOOTED


def test_a_lost_supervisor_of_a_restarting_or_ending_pod_only_ends_the_leftovers() -> None:
    lost = seen(main=Run(0, RunState.LOST))
    for one in (pod(policy="Always"), pod(metadata=deleted())):
        [end] = actions(one, lost)
        assert isinstance(end, EndLeftovers)


def test_a_shim_that_does_not_kill_in_time_is_killed() -> None:
    stuck = seen(main=running(kill_in_seconds=-10.5))
    [end] = actions(pod(metadata=deleted()), stuck)
    assert isinstance(end, EndLeftovers)
    assert actions(pod(metadata=deleted()), seen(main=running(kill_in_seconds=-5.0))) == ()


def test_a_pod_that_somebody_else_declared_failed_is_stopped() -> None:
    one = pod(status={"phase": "Failed"})
    assert actions(one, seen(main=running())) == (Stop("main", 0, 30.0),)


def test_a_start_that_waits_is_tried_again() -> None:
    waiting = with_(seen(), waiting={"main": Waiting("CreateContainerConfigError", "x")})
    assert decide(pod(), waiting, RULES) == Decision((Start("main", 0),), 2.0)


def test_an_orphan_is_stopped_soon_and_then_forgotten() -> None:
    assert decide_orphan(seen(main=running())).actions == (Stop("main", 0, 1.0),)
    [end] = decide_orphan(seen(main=Run(0, RunState.LOST))).actions
    assert isinstance(end, EndLeftovers)
    assert decide_orphan(seen(main=ended())).actions == (Forget(),)
    assert decide_orphan(seen()).actions == (Forget(),)


def test_a_failure_outweighs_exit_codes() -> None:
    failed = with_(seen(main=ended(0)), failure=Failure("X", "y"))
    assert final_phase(pod(), failed) == "Failed"
