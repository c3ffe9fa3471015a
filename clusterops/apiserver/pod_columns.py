"""The columns that `kubectl get pods` shows: readiness, the one word for its state, restarts."""

from typing import Any

from clusterops.apiserver.ages import human_duration, seconds_since_epoch
from clusterops.apiserver.columns import NAME, Column, age_column

Obj = dict[str, Any]
NONE = "<none>"
_RESTARTABLE = "Always"  # an init container with this policy runs beside the others


def _statuses(pod: Obj, field: str = "containerStatuses") -> list[Obj]:
    return (pod.get("status") or {}).get(field) or []


def _sidecars(pod: Obj) -> set[str]:
    init = (pod.get("spec") or {}).get("initContainers") or ()
    return {c["name"] for c in init if c.get("restartPolicy") == _RESTARTABLE}


def ready(pod: Obj, _now: float) -> str:
    """`READY`: containers that are ready of those there are."""
    sidecars = _sidecars(pod)
    total = len((pod.get("spec") or {}).get("containers") or ()) + len(sidecars)
    up = sum(
        1 for s in _statuses(pod) if s.get("ready") and "running" in (s.get("state") or {})
    ) + sum(
        1
        for s in _statuses(pod, "initContainerStatuses")
        if s.get("name") in sidecars and s.get("ready") and s.get("started")
    )
    return f"{up}/{total}"


def status(pod: Obj, _now: float) -> str:
    """`STATUS`: the phase, or what holds a container up."""
    stated = pod.get("status") or {}
    word = str(stated.get("reason") or stated.get("phase") or "")
    for condition in stated.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    initializing = _init_word(pod)
    word = initializing if initializing is not None else _container_word(pod, word)
    if pod["metadata"].get("deletionTimestamp") and stated.get("reason") == "NodeLost":
        return "Unknown"
    if pod["metadata"].get("deletionTimestamp") and stated.get("phase") not in (
        "Succeeded",
        "Failed",
    ):
        return "Terminating"
    return word


def _init_word(pod: Obj) -> str | None:
    """The state of the first init container that is not done; None when all are."""
    total = len((pod.get("spec") or {}).get("initContainers") or ())
    sidecars = _sidecars(pod)
    for index, container in enumerate(_statuses(pod, "initContainerStatuses")):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return f"Init:{_ending(terminated)}"
        if waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{total}"
    return None


def _container_word(pod: Obj, word: str) -> str:
    running = False
    for container in reversed(_statuses(pod)):
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif terminated is not None:
            word = _ending(terminated)
        elif container.get("ready") and "running" in state:
            running = True
    if word == "Completed" and running:
        conditions = (pod.get("status") or {}).get("conditions") or ()
        is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
        return "Running" if is_ready else "NotReady"
    return word


def _ending(terminated: Obj) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def restarts(pod: Obj, now: float) -> str:
    """`RESTARTS`: how many, and how long ago the last one was."""
    containers = _statuses(pod)
    count = sum(int(c.get("restartCount") or 0) for c in containers)
    ends = [
        seconds
        for c in containers
        if (
            seconds := seconds_since_epoch(
                ((c.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
            )
        )
        is not None
    ]
    if count and ends:
        return f"{count} ({human_duration(now - max(ends))} ago)"
    return str(count)


def _gates(pod: Obj, _now: float) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    if not gates:
        return NONE
    conditions = {
        c.get("type"): c.get("status") for c in (pod.get("status") or {}).get("conditions") or ()
    }
    true = sum(1 for gate in gates if conditions.get(gate.get("conditionType")) == "True")
    return f"{true}/{len(gates)}"


def _ip(pod: Obj, _now: float) -> str:
    stated = pod.get("status") or {}
    addresses = stated.get("podIPs") or ()
    return str((addresses[0].get("ip") if addresses else stated.get("podIP")) or NONE)


PODS = (
    NAME,
    Column("Ready", "string", ready),
    Column("Status", "string", status),
    Column("Restarts", "string", restarts),
    age_column(),
    Column("IP", "string", _ip, priority=1),
    Column(
        "Node", "string", lambda pod, _: (pod.get("spec") or {}).get("nodeName") or NONE, priority=1
    ),
    Column(
        "Nominated Node",
        "string",
        lambda pod, _: (pod.get("status") or {}).get("nominatedNodeName") or NONE,
        priority=1,
    ),
    Column("Readiness Gates", "string", _gates, priority=1),
)
