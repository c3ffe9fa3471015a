"""What to do next about one pod: from its object and what is known of it here to actions. Pure.

Level-triggered: the same knowledge always gives the same actions, so lost, doubled or late events do
no harm, and a restarted agent goes on where the last one stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.api import names
from clusterops.nodeagent.admission import Failure, Rules, refuse
from clusterops.nodeagent.downward import Pod
from clusterops.nodeagent.observation import Observed, Run, RunState

DEFAULT_GRACE_SECONDS = 30.0
ORPHAN_GRACE_SECONDS = 1.0  # what Kubernetes gives a pod that was deleted by force
KILL_MARGIN_SECONDS = 10.0  # how long a shim may take for a KILL before we do it ourselves
RETRY_START_SECONDS = 2.0
BASE_BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0
STABLE_RUN_SECONDS = 600.0  # a run as long as this ends the back-off

DEADLINE_EXCEEDED = "DeadlineExceeded"
SUPERVISOR_LOST = "SupervisorLost"
NODE_REBOOTED = "NodeRebooted"
STATE_LOST = "StateLost"
NODE_SHUTDOWN = "Terminated"  # kubelet's word

DISRUPTIONS = frozenset({SUPERVISOR_LOST, NODE_REBOOTED, STATE_LOST, NODE_SHUTDOWN})
"""Failures that are no fault of the pod's own: its status carries DisruptionTarget."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Record the pod as ours and give it its GPUs."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container, for the `attempt`th time (from 0)."""

    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """TERM now, KILL after the grace; or bring an earlier request's KILL forward."""

    container: str
    attempt: int
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class EndLeftovers:
    """KILL whatever is left of a run without a (working) shim, and record its end."""

    container: str
    attempt: int
    message: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Record that the pod has failed, for a reason other than its containers' exit codes."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Release:
    """Nothing of the pod runs or will run: its GPUs are free."""


@dataclass(frozen=True, slots=True)
class Delete:
    """After the last status is stored, let the API server remove the object."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove what is left of the pod on this machine."""


Action = Admit | Start | Stop | EndLeftovers | Fail | Release | Delete | Forget


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, and after how many seconds to decide again if nothing happens."""

    actions: tuple[Action, ...] = ()
    recheck_seconds: float | None = None


def decide(pod: Pod, observed: Observed, rules: Rules) -> Decision:
    """What to do about a pod that the API server has bound to this node."""
    if not observed.admitted:
        return Decision(_first_actions(pod, rules))
    leftovers = _leftovers(pod, observed)
    if leftovers:
        return Decision(leftovers)
    if is_ending(pod, observed):
        return _end(pod, observed)
    remaining = _deadline_in_seconds(pod, observed)
    if remaining is not None and remaining <= 0:
        seconds = pod["spec"]["activeDeadlineSeconds"]
        message = f"Pod was active on the node longer than the specified deadline of {seconds} s"
        if names.ANNOTATION_ENDS_WITHIN in (pod["metadata"].get("annotations") or {}):
            message = f"Pod was told to end within {_grace_seconds(pod):g} s"
        return Decision((Fail(Failure(DEADLINE_EXCEEDED, message)),))
    if final_phase(pod, observed) is not None:
        return Decision(() if observed.ended else (Release(),))
    decision = _advance(pod, observed)
    return Decision(decision.actions, _earliest(decision.recheck_seconds, remaining))


def decide_orphan(observed: Observed) -> Decision:
    """What to do about a pod of which the API server knows nothing any more: end it, forget it."""
    lost = tuple(
        EndLeftovers(container, run.attempt, "The pod was deleted while nobody watched it")
        for container, run in observed.alive()
        if run.state is RunState.LOST or _overdue(run)
    )
    if lost:
        return Decision(lost)
    if observed.alive():
        return _stop_all(observed, ORPHAN_GRACE_SECONDS)
    return Decision((Forget(),))


def is_deleting(pod: Pod) -> bool:
    """True once somebody has asked for the pod's deletion."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_ending(pod: Pod, observed: Observed) -> bool:
    """True when no container of the pod may start any more."""
    return is_deleting(pod) or observed.failure is not None or _final_in_api(pod)


def final_phase(pod: Pod, observed: Observed) -> str | None:
    """Succeeded or Failed once nothing of the pod runs or will run again; None until then."""
    if _final_in_api(pod):
        return str(pod["status"]["phase"])
    if observed.alive():
        return None
    if observed.failure is not None:
        return "Failed"
    mains = [observed.last(container["name"]) for container in pod["spec"]["containers"]]
    done = [run for run in mains if run is not None and run.state is RunState.EXITED]
    all_zero = len(done) == len(mains) and all(run.exit_code == 0 for run in done)
    if is_deleting(pod):
        return "Succeeded" if all_zero else "Failed"
    if _failed_init(pod, observed):
        return "Failed"
    if len(done) < len(mains) or any(_restarts(_policy(pod), run) for run in done):
        return None
    return "Succeeded" if all_zero else "Failed"


def back_off_seconds(runs: tuple[Run, ...]) -> float:
    """How long to wait after the last of these runs before the next: 0, 10, 20, ... 300 seconds."""
    short = 0
    for run in reversed(runs):
        if run.ran_seconds >= STABLE_RUN_SECONDS:
            break
        short += 1
    if short < 2:
        return 0.0
    return float(min(MAX_BACK_OFF_SECONDS, BASE_BACK_OFF_SECONDS * 2.0 ** min(short - 2, 10)))


def initialized(pod: Pod, observed: Observed) -> bool:
    """True when every init container has succeeded."""
    runs = [observed.last(container["name"]) for container in _inits(pod)]
    return all(
        run is not None and run.state is RunState.EXITED and run.exit_code == 0 for run in runs
    )


def _first_actions(pod: Pod, rules: Rules) -> tuple[Action, ...]:
    if is_deleting(pod):
        return (Delete(),)  # nothing of it is here
    if _final_in_api(pod):
        return ()
    if _was_started(pod):
        # Starting it again could run it twice; its exit code cannot be known.
        message = "The node's records of this pod are lost, and with them how it ended"
        return (Fail(Failure(STATE_LOST, message)),)
    refusal = refuse(pod, rules)
    return (Admit(),) if refusal is None else (Fail(refusal),)


def _leftovers(pod: Pod, observed: Observed) -> tuple[Action, ...]:
    """Ends the runs whose shim is gone or does not do its work."""
    actions: list[Action] = []
    for container, run in observed.alive():
        if run.state is RunState.LOST:
            reason, message = _lost(run)
        elif _overdue(run):
            reason, message = SUPERVISOR_LOST, "The container's supervisor did not end it in time"
        else:
            continue
        deleting = is_ending(pod, observed)
        if _policy(pod) == "Never" and not deleting and not actions:
            actions.append(Fail(Failure(reason, f"container {container!r}: {message}")))
        actions.append(EndLeftovers(container, run.attempt, message))
    return tuple(actions)


def _lost(run: Run) -> tuple[str, str]:
    if run.rebooted:
        return NODE_REBOOTED, "The machine was restarted while the container was running"
    return (
        SUPERVISOR_LOST,
        "The container's supervisor was killed, so the exit code is unknown; the processes it left"
        " were ended",
    )


def _overdue(run: Run) -> bool:
    return run.kill_in_seconds is not None and run.kill_in_seconds < -KILL_MARGIN_SECONDS


def _end(pod: Pod, observed: Observed) -> Decision:
    if observed.alive():
        return _stop_all(observed, _grace_seconds(pod))
    actions: list[Action] = []
    if not observed.ended:
        actions.append(Release())
    if is_deleting(pod):
        actions.append(Delete())
    return Decision(tuple(actions))


def _stop_all(observed: Observed, grace_seconds: float) -> Decision:
    actions: list[Action] = []
    recheck = None
    for container, run in observed.alive():
        left = run.kill_in_seconds
        # A second deletion may shorten the grace, never lengthen it.
        if left is None or grace_seconds < left:
            actions.append(Stop(container, run.attempt, grace_seconds))
            left = grace_seconds
        recheck = _earliest(recheck, left + KILL_MARGIN_SECONDS + 0.1)
    return Decision(tuple(actions), recheck)


def _advance(pod: Pod, observed: Observed) -> Decision:
    """The next steps of a pod that nothing hinders: init containers in order, then the others."""
    for container in _inits(pod):
        run = observed.last(container["name"])
        if run is None or run.state is not RunState.EXITED or run.exit_code != 0:
            return _advance_container(observed, container["name"], "OnFailure")
    actions: list[Action] = []
    recheck: float | None = None
    for container in pod["spec"]["containers"]:
        decision = _advance_container(observed, container["name"], _policy(pod))
        actions.extend(decision.actions)
        recheck = _earliest(recheck, decision.recheck_seconds)
    return Decision(tuple(actions), recheck)


def _advance_container(observed: Observed, container: str, policy: str) -> Decision:
    run = observed.last(container)
    retry = RETRY_START_SECONDS if container in observed.waiting else None
    if run is None:
        return Decision((Start(container, 0),), retry)
    if run.state is RunState.PREPARED:
        return Decision((Start(container, run.attempt),), retry)
    if run.state is not RunState.EXITED or not _restarts(policy, run):
        return Decision()
    wait = back_off_seconds(observed.runs[container]) - (run.ended_seconds_ago or 0.0)
    if wait > 0 and run.ended_seconds_ago is not None:
        return Decision((), wait)
    return Decision((Start(container, run.attempt + 1),), retry)


def _restarts(policy: str, run: Run) -> bool:
    return policy == "Always" or (policy == "OnFailure" and run.exit_code != 0)


def _failed_init(pod: Pod, observed: Observed) -> bool:
    """True when an init container has failed for good."""
    if _policy(pod) != "Never":
        return False
    runs = [observed.last(container["name"]) for container in _inits(pod)]
    return any(
        run is not None and run.state is RunState.EXITED and run.exit_code != 0 for run in runs
    )


def _final_in_api(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _was_started(pod: Pod) -> bool:
    status = pod.get("status") or {}
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    return any(
        (entry.get("state") or {}).keys() & {"running", "terminated"} or entry.get("restartCount")
        for entry in statuses
    )


def _grace_seconds(pod: Pod) -> float:
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    asked = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_ENDS_WITHIN, "")
    if asked.isascii() and asked.isdigit():
        grace = int(asked[:9])
    if is_deleting(pod):
        of_deletion = pod["metadata"].get("deletionGracePeriodSeconds")
        grace = grace if of_deletion is None else of_deletion
    return DEFAULT_GRACE_SECONDS if grace is None else max(0.0, float(grace))


def _deadline_in_seconds(pod: Pod, observed: Observed) -> float | None:
    seconds = pod["spec"].get("activeDeadlineSeconds")
    if seconds is None or final_phase(pod, observed) is not None:
        return None
    return float(seconds) - observed.age_seconds


def _policy(pod: Pod) -> str:
    return str(pod["spec"].get("restartPolicy") or "Always")


def _inits(pod: Pod) -> list[Mapping[str, Any]]:
    return list(pod["spec"].get("initContainers") or ())


def _earliest(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)
