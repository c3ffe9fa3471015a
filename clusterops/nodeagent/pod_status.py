"""The status of a pod, as kubelet would write it, from what is known of it here. Pure."""

from collections.abc import Mapping
from typing import Any

from clusterops.nodeagent import pod_lifecycle
from clusterops.nodeagent.downward import Pod
from clusterops.nodeagent.observation import Observed, Run, RunState

DISRUPTION_TARGET = "DisruptionTarget"

Status = dict[str, Any]


def build(pod: Pod, observed: Observed, *, node_ip: str, now: str) -> Status:
    """The status that the pod should have.

    Only the fields that are ours: `changes` compares them with the object's and leaves the rest
    alone. `now` is RFC 3339; it becomes the time of transitions that are seen for the first time.
    """
    phase = pod_lifecycle.final_phase(pod, observed) or _phase_of_living(pod, observed)
    status: Status = {"phase": phase, "hostIP": node_ip, "podIP": node_ip}
    status["podIPs"] = [{"ip": node_ip}]
    status["hostIPs"] = [{"ip": node_ip}]
    if observed.failure is not None:
        status["reason"] = observed.failure.reason
        status["message"] = observed.failure.message
    if observed.admitted_at:
        status["startTime"] = observed.admitted_at
    if observed.runs or observed.failure is None:
        spec = pod["spec"]
        inits = spec.get("initContainers") or ()
        if inits:
            status["initContainerStatuses"] = [
                _container(pod, container, observed, init=True) for container in inits
            ]
        status["containerStatuses"] = [
            _container(pod, container, observed, init=False) for container in spec["containers"]
        ]
    status["conditions"] = _conditions(pod, observed, phase, now)
    return status


def changes(pod: Pod, status: Status) -> Status:
    """The part of `status` in which the object differs, as a merge patch; empty when it agrees."""
    # Servers write unset times as null.
    current = _without_nulls(pod.get("status") or {})
    changed = {key: value for key, value in status.items() if current.get(key) != value}
    changed.update(
        {key: None for key in ("reason", "message") if key in current and key not in status}
    )
    return changed


def _phase_of_living(pod: Pod, observed: Observed) -> str:
    """Running once every container has been started at least once."""
    for container in pod["spec"]["containers"]:
        runs = observed.runs.get(container["name"], ())
        if all(run.state is RunState.PREPARED for run in runs):
            return "Pending"
    return "Running"


def _container(pod: Pod, container: Mapping[str, Any], observed: Observed, *, init: bool) -> Status:
    name = container["name"]
    runs = observed.runs.get(name, ())
    begun = [run for run in runs if run.state is not RunState.PREPARED]
    run = begun[-1] if begun else None
    running = run is not None and run.state in (RunState.RUNNING, RunState.LOST)
    status: Status = {
        "name": name,
        "image": container.get("image") or "",
        "imageID": "",
        "restartCount": run.attempt if run else 0,
        "ready": running and not init,
        "started": running,
        "state": {},
        "lastState": {},
    }
    if init and run is not None and run.state is RunState.EXITED:
        status["ready"] = run.exit_code == 0
    waiting = _waiting(pod, container, observed, run, init=init)
    previous = begun[-2] if len(begun) > 1 else None
    if run is not None and running:
        status["state"] = {"running": {"startedAt": run.started_at}}
    elif waiting is not None:
        status["state"] = {"waiting": waiting}
        previous = run
    elif run is not None:
        status["state"] = {"terminated": _terminated(run)}
    if run is not None and run.pid:
        status["containerID"] = _container_id(run)
    if previous is not None and previous.state is RunState.EXITED:
        status["lastState"] = {"terminated": _terminated(previous)}
    return status


def _waiting(
    pod: Pod, container: Mapping[str, Any], observed: Observed, run: Run | None, *, init: bool
) -> Status | None:
    """Why the container does not run although it will; None when it runs or is done."""
    name = container["name"]
    if name in observed.waiting:
        problem = observed.waiting[name]
        return {"reason": problem.reason, "message": problem.message}
    if run is None:
        first = init or not pod["spec"].get("initContainers")
        if first or pod_lifecycle.initialized(pod, observed):
            return {"reason": "ContainerCreating"}
        return {"reason": "PodInitializing"}
    if run.state is not RunState.EXITED or pod_lifecycle.is_ending(pod, observed):
        return None
    policy = pod["spec"].get("restartPolicy") or "Always"
    again = run.exit_code != 0 if init else policy == "Always" or run.exit_code != 0
    if policy == "Never" or not again:
        return None
    seconds = pod_lifecycle.back_off_seconds(observed.runs[name])
    message = f"back-off {seconds:g}s restarting failed container={name}"
    return {"reason": "CrashLoopBackOff", "message": message}


def _terminated(run: Run) -> Status:
    status: Status = {"exitCode": run.exit_code, "reason": run.reason}
    optional = {
        "startedAt": run.started_at,
        "finishedAt": run.finished_at,
        "signal": run.signal,
        "message": run.message,
    }
    status.update({key: value for key, value in optional.items() if value})
    if run.pid:
        status["containerID"] = _container_id(run)
    return status


def _container_id(run: Run) -> str:
    return f"process://{run.pid}"


def _conditions(pod: Pod, observed: Observed, phase: str, now: str) -> list[Status]:
    """Ours, then those of others as they stand; a transition keeps its time while nothing changes."""
    existing = _without_nulls((pod.get("status") or {}).get("conditions") or [])
    done = phase in ("Succeeded", "Failed")
    inits = [container["name"] for container in pod["spec"].get("initContainers") or ()]
    unready = [
        container["name"]
        for container in pod["spec"]["containers"]
        if not _is_running(observed.last(container["name"]))
    ]
    initialized: Status = {"status": "True"}
    if not pod_lifecycle.initialized(pod, observed):
        initialized = {
            "status": "False",
            "reason": "ContainersNotInitialized",
            "message": f"containers with incomplete status: [{' '.join(inits)}]",
        }
    ready: Status = {"status": "True"}
    if done:
        ready = {
            "status": "False",
            "reason": "PodCompleted" if phase == "Succeeded" else "PodFailed",
        }
    elif unready:
        ready = {
            "status": "False",
            "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{' '.join(unready)}]",
        }
    wanted = {
        "PodScheduled": {"status": "True"},
        "Initialized": initialized,
        "ContainersReady": ready,
        "Ready": ready,
    }
    failure = observed.failure
    if failure is not None and failure.reason in pod_lifecycle.DISRUPTIONS:
        # Whoever counts the pod's failures must not count this one.
        wanted[DISRUPTION_TARGET] = {
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": f"{failure.reason}: {failure.message}",
        }
    ours = []
    for kind in wanted:
        before: Status = next((entry for entry in existing if entry.get("type") == kind), {})
        same = before.get("status") == wanted[kind]["status"]
        since = before.get("lastTransitionTime") if same else None
        ours.append({"type": kind, **wanted[kind], "lastTransitionTime": since or now})
        if same and kind == "PodScheduled":
            ours[-1] = dict(before)  # the binder's words
    return ours + [entry for entry in existing if entry.get("type") not in wanted]


def _is_running(run: Run | None) -> bool:
    return run is not None and run.state in (RunState.RUNNING, RunState.LOST)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value
