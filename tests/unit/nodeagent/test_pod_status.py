"""The status that people and the operator read, from snapshots."""

import copy

from clusterops.nodeagent import pod_status
from clusterops.nodeagent.admission import Failure
from clusterops.nodeagent.observation import Observed, Run, RunState, Waiting

NOW = "2026-01-02T00:00:00Z"
EARLIER = "2026-01-01T00:00:00Z"


def pod(*mains: str, init: tuple[str, ...] = (), policy: str = "Never", status=None) -> dict:
    spec = {
        "restartPolicy": policy,
        "containers": [{"name": name, "image": "i"} for name in mains or ("main",)],
        "initContainers": [{"name": name, "image": "i"} for name in init],
    }
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


RUNNING = Run(0, RunState.RUNNING, pid=77, started_at=EARLIER)


def exited(code: int, attempt: int = 0, **fields) -> Run:
    reason = "Completed" if code == 0 else "Error"
    return Run(
        attempt,
        RunState.EXITED,
        pid=70 + attempt,
        started_at=EARLIER,
        finished_at=NOW,
        exit_code=code,
        reason=reason,
        **fields,
    )


def build(one: dict, **fields) -> dict:
    observed = Observed(**{"admitted": True, "admitted_at": EARLIER, **fields})
    return pod_status.build(one, observed, node_ip="10.0.0.7", now=NOW)


def conditions(status: dict) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in status["conditions"]}


def test_a_running_pod() -> None:
    status = build(pod(), runs={"main": (RUNNING,)})
    assert status["phase"] == "Running"
    assert status["startTime"] == EARLIER
    assert status["podIP"] == status["hostIP"] == "10.0.0.7"
    [container] = status["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": EARLIER}}
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)
    assert set(conditions(status).values()) == {"True"}


def test_a_pod_waits_while_any_container_has_not_begun() -> None:
    problem = Waiting("CreateContainerConfigError", "secret 'x' not found")
    status = build(pod("a", "b"), runs={"a": (RUNNING,)}, waiting={"b": problem})
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][1]["state"] == {
        "waiting": {"reason": "CreateContainerConfigError", "message": "secret 'x' not found"}
    }
    assert conditions(status)["Ready"] == "False"
    assert status["conditions"][-1]["message"] == "containers with unready status: [b]"


def test_the_others_wait_for_the_init_containers() -> None:
    status = build(pod(init=("i",)), runs={"i": (RUNNING,)})
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status["initContainerStatuses"][0]["state"].keys() == {"running"}
    assert conditions(status)["Initialized"] == "False"
    done = build(pod(init=("i",)), runs={"i": (exited(0),)})
    assert done["initContainerStatuses"][0]["ready"]
    assert conditions(done)["Initialized"] == "True"
    assert done["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}


def test_an_ended_pod_keeps_code_signal_and_message() -> None:
    status = build(pod(), runs={"main": (exited(137, signal=9, message="oh"),)})
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 137,
        "signal": 9,
        "reason": "Error",
        "message": "oh",
        "startedAt": EARLIER,
        "finishedAt": NOW,
        "containerID": "process://70",
    }
    assert status["conditions"][-1]["reason"] == "PodFailed"


def test_a_completed_pod_is_not_ready_because_it_is_done() -> None:
    status = build(pod(), runs={"main": (exited(0),)})
    assert status["phase"] == "Succeeded"
    assert status["conditions"][-1]["reason"] == "PodCompleted"


def test_a_crashing_container_shows_its_back_off_and_its_last_end() -> None:
    runs = (exited(1), exited(2, 1))
    status = build(pod(policy="Always"), runs={"main": runs})
    [container] = status["containerStatuses"]
    assert status["phase"] == "Running"
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert "back-off 10s" in container["state"]["waiting"]["message"]
    assert container["lastState"]["terminated"]["exitCode"] == 2
    assert container["restartCount"] == 1


def test_a_restarted_container_shows_how_the_last_run_ended() -> None:
    runs = (exited(3), Run(1, RunState.RUNNING, pid=8, started_at=NOW))
    [container] = build(pod(policy="OnFailure"), runs={"main": runs})["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": NOW}}
    assert container["lastState"]["terminated"]["exitCode"] == 3


def test_a_refused_pod_says_why_and_shows_no_containers() -> None:
    status = build(pod(), failure=Failure("OutOfnvidia.com/gpu", "wants 9"), ended=True)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "OutOfnvidia.com/gpu",
        "wants 9",
    )
    assert "containerStatuses" not in status


def test_a_failing_pod_is_failed_only_when_nothing_runs_any_more() -> None:
    failure = Failure("DeadlineExceeded", "too long")
    assert build(pod(), failure=failure, runs={"main": (RUNNING,)})["phase"] == "Running"
    assert build(pod(), failure=failure, runs={"main": (exited(0),)})["phase"] == "Failed"


def test_transitions_keep_their_time_and_others_conditions_stay() -> None:
    before = build(pod(), runs={"main": (RUNNING,)})
    foreign = {"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": EARLIER, "reason": "b"}
    stored = copy.deepcopy(before)
    stored["conditions"] = [foreign, bound, *before["conditions"][1:]]
    one = pod(status=stored)
    observed = Observed(admitted=True, admitted_at=EARLIER, runs={"main": (exited(1),)})
    later = pod_status.build(one, observed, node_ip="10.0.0.7", now="2026-01-03T00:00:00Z")
    by_type = {entry["type"]: entry for entry in later["conditions"]}
    assert by_type["DisruptionTarget"] == foreign
    assert by_type["PodScheduled"] == bound
    assert by_type["Initialized"]["lastTransitionTime"] == NOW
    assert by_type["Ready"]["lastTransitionTime"] == "2026-01-03T00:00:00Z"


def test_nothing_is_written_when_nothing_changed() -> None:
    status = build(pod(), runs={"main": (RUNNING,)})
    stored = {**copy.deepcopy(status), "qosClass": "BestEffort"}
    for condition in stored["conditions"]:
        condition["lastProbeTime"] = None  # as real servers write unset times
    one = pod(status=stored)
    again = build(one, runs={"main": (RUNNING,)})
    assert pod_status.changes(one, again) == {}


def test_only_what_changed_is_written_and_a_reason_can_go() -> None:
    stored = build(pod(), runs={"main": (RUNNING,)})
    one = pod(status={**stored, "reason": "Old", "message": "old"})
    changes = pod_status.changes(one, build(one, runs={"main": (exited(0),)}))
    assert changes["reason"] is None
    assert changes["message"] is None
    assert changes["phase"] == "Succeeded"
    assert "startTime" not in changes


def test_a_disruption_is_told_from_a_failure_of_the_pods_own() -> None:
    lost = Failure("SupervisorLost", "killed")
    by_type = {
        entry["type"]: entry
        for entry in build(pod(), failure=lost, runs={"main": (exited(137),)})["conditions"]
    }
    assert by_type["DisruptionTarget"]["status"] == "True"
    assert by_type["DisruptionTarget"]["message"] == "SupervisorLost: killed"
    late = Failure("DeadlineExceeded", "too long")
    assert "DisruptionTarget" not in conditions(
        build(pod(), failure=late, runs={"main": (exited(137),)})
    )
