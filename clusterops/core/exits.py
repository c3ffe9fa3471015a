"""How an attempt ended, told from its pods: one exit per rank, one cause for the whole.

A job is a gang: the first rank that fails ends all. Who is to blame is decided by the earliest
failure, because the ranks that lose their peer fail a moment later for no fault of their own.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from clusterops.api.reasons import Cause
from clusterops.core.observed import Observed, RankReport
from clusterops.core.observed_pods import Node, Pod, Terminated

EXIT_PORT_TAKEN = 75
"""A rank's process exits so (EX_TEMPFAIL) when its rendezvous port belongs to somebody else."""
EXIT_LEFT = 143
"""A process ended by TERM, or one that saved and left because it was told to (128 + 15)."""
MOST_WORDS = 1_000
"""Characters that a foreign message may add to a status."""

# Reasons with which a kubelet or a controller ends a pod that did nothing wrong.
_EVICTIONS = frozenset({"Evicted", "Preempting", "NodeShutdown", "Terminated", "Shutdown"})
_NODE_LOSSES = frozenset({"NodeLost"})
# Reasons of a pod or container that never began.
_START_FAILURES = frozenset(
    {
        "StartError",
        "ContainerCannotRun",
        "CreateContainerError",
        "CreateContainerConfigError",
        "RunContainerError",
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "InvalidImageName",
        "ErrImageNeverPull",
        "StartFailed",
    }
)
# A shell's codes for a command that cannot be executed and one that is not there.
_COMMAND_CODES = (126, 127)
# How container runtimes word it; their code is 128 whatever the reason.
_COMMAND_WORDS = ("executable file not found", "no such file or directory", "permission denied")
_CANNOT_START = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "ErrImageNeverPull",
        "InvalidImageName",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class Ending(NamedTuple):
    """Why an attempt ends, in words too."""

    cause: Cause
    message: str


def all_succeeded(pods: tuple[Pod, ...], expected: int) -> bool:
    """True when every rank is there and exited 0."""
    ranks = {pod.rank for pod in pods if pod.exited_zero}
    return len(pods) >= expected and ranks == set(range(expected))


def all_finished(reports: tuple[RankReport, ...], expected: int) -> bool:
    """True when every rank has said that all its work is done.

    `expected` is the number of pods; one with several processes may report for each of them.
    """
    return len(reports) >= expected and all(report.finished for report in reports)


def left_as_asked(pod: Pod) -> bool:
    """True for a pod that ended as one does that was told to save and leave."""
    ended = _failed_container(pod)
    return pod.status.phase == "Failed" and ended is not None and ended.exit_code == EXIT_LEFT


def first_failure(pods: tuple[Pod, ...], nodes: Observed) -> Ending | None:
    """The cause of the earliest failed rank, None when no rank has failed.

    `nodes` is the view the pods' nodes are looked up in: a rank that fails on a node with a health
    fault is charged to the node.
    """
    failed = [pod for pod in pods if pod.status.phase == "Failed"]
    if not failed:
        return None
    # A rank that could not even start, or was put out, explains the others' failures better than
    # its own time does: it often carries none.
    blamed = min(failed, key=lambda pod: (_ended_at(pod), pod.rank))
    ending = blame(blamed, nodes.nodes.get(blamed.spec.node_name))
    if ending.cause is Cause.USER_ERROR:
        return _silent_node(pods, nodes, _ended_at(blamed)) or ending
    return ending


def failed_at(pod: Pod) -> datetime | None:
    """When a pod failed, by its node's clock; None when it has not, or does not say when."""
    ended = _failed_container(pod) if pod.status.phase == "Failed" else None
    return ended.finished_at if ended is not None else None


def _silent_node(pods: tuple[Pod, ...], nodes: Observed, failed_at: datetime) -> Ending | None:
    """A node of the gang that was not Ready: a rank that lost its peer there fails like a bad program."""
    for pod in pods:
        node = nodes.nodes.get(pod.spec.node_name)
        if node is not None and node.unready_at(failed_at):
            name = node.metadata.name
            return Ending(
                Cause.NODE_LOST, f"a rank failed while {name}, its peer's node, was not Ready"
            )
    return None


def blame(pod: Pod, node: Node | None) -> Ending:
    """The cause and the sentence for one failed pod."""
    where = f" on {pod.spec.node_name}" if pod.spec.node_name else ""
    who = f"rank {pod.rank}{where}"
    reason = pod.status.reason
    if pod.metadata.deleting:
        return Ending(Cause.EVICTED, f"{who} was deleted")
    if node is not None and node.faulty:
        return Ending(Cause.NODE_FAULT, f"{who} failed and its node has a health fault")
    if reason in _NODE_LOSSES:
        return Ending(Cause.NODE_LOST, f"{who}: its node stopped answering")
    disrupted = pod.condition("DisruptionTarget")
    if reason in _EVICTIONS or (disrupted is not None and disrupted.true):
        why = reason or (disrupted.reason if disrupted is not None else "")
        return Ending(
            Cause.EVICTED,
            f"{who} was put out by its node: {why} {plain(pod.status.message)}".strip(),
        )
    ended = _failed_container(pod)
    if ended is not None and _command_is_wrong(ended):
        detail = plain(ended.message) or f"exit code {ended.exit_code}"
        return Ending(Cause.USER_ERROR, f"{who} could not run its command: {detail}")
    if ended is None or ended.reason in _START_FAILURES or reason in _START_FAILURES:
        detail = (ended and (ended.message or ended.reason)) or pod.status.message or reason
        detail = plain(detail) or "no reason given"
        return Ending(Cause.START_FAILED, f"{who} could not start: {detail}")
    if ended.exit_code == EXIT_PORT_TAKEN:
        return Ending(Cause.START_FAILED, f"{who}: its rendezvous port was taken")
    return Ending(Cause.USER_ERROR, f"{who} {_exit_words(ended)}")


def _command_is_wrong(ended: Terminated) -> bool:
    """A command that is misspelt fails on every node alike: to try again is of no use."""
    if ended.reason not in ("StartError", "ContainerCannotRun"):
        return False
    words = ended.message.lower()
    return ended.exit_code in _COMMAND_CODES or any(known in words for known in _COMMAND_WORDS)


def cannot_start(pods: tuple[Pod, ...]) -> Ending | None:
    """A container that is being refused (image, configuration), None when there is none."""
    for pod in pods:
        for container in pod.containers:
            waiting = container.state.waiting
            if waiting is not None and waiting.reason in _CANNOT_START:
                detail = f"{waiting.reason}: {plain(waiting.message)}".rstrip(": ")
                return Ending(Cause.START_FAILED, f"rank {pod.rank} could not start: {detail}")
    return None


def missing_ranks(pods: tuple[Pod, ...], expected: int) -> list[int]:
    """Ranks that have no pod."""
    present = {pod.rank for pod in pods}
    return [rank for rank in range(expected) if rank not in present]


def plain(text: str) -> str:
    """Foreign words for one line of a status: no control characters, no more than can be read."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= MOST_WORDS else words[: MOST_WORDS - 3] + "..."


def _failed_container(pod: Pod) -> Terminated | None:
    """The first container that ended with anything but 0."""
    ended = [container.state.terminated for container in pod.containers]
    failed = [end for end in ended if end is not None and end.exit_code != 0]
    return min(failed, key=lambda end: end.finished_at or _END_OF_TIME, default=None)


def _ended_at(pod: Pod) -> datetime:
    ended = _failed_container(pod)
    return datetime.min.replace(tzinfo=UTC) if ended is None else ended.finished_at or _END_OF_TIME


def _exit_words(ended: Terminated) -> str:
    if ended.reason == "OOMKilled":
        return "ran out of memory (OOMKilled)"
    last_words = plain(ended.message)
    detail = f": {last_words}" if last_words else ""
    if ended.exit_code > 128:
        return f"was ended by signal {ended.exit_code - 128}{detail}"
    return f"exited with code {ended.exit_code}{detail}"
