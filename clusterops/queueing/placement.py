"""Which node each waiting pod goes to, pure: least fragmentation, gangs whole or not at all.

Nodes are filled one after the other: a pod goes where the least would be left over, so that whole
nodes stay free for large pods. The pods of one attempt of a job are placed together: when the last
one has no place, none of them is bound. Where the exact fit of a gang depends on the choice for its
first pods, largest pods first and a second try with the emptiest nodes first are made.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from clusterops.scheduling.objects import NodeSelection, Taint
from clusterops.scheduling.snapshot import matches

NAME_LABEL = "kubernetes.io/hostname"
_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable")


class NodeRoom(msgspec.Struct, frozen=True):
    """A node and what it can give in all.

    A resource that a node does not declare is not counted there, except that GPUs and other
    extended resources must be declared to be had.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    ready: bool = True
    unschedulable: bool = False


class PodDemand(msgspec.Struct, frozen=True):
    """A pod as placement sees it. `gang` groups the pods that only make sense together."""

    namespace: str
    name: str
    uid: str
    requests: Mapping[str, int]
    selection: NodeSelection
    node: str = ""
    gang: tuple[str, ...] = ()
    created: float = 0.0


class Binding(msgspec.Struct, frozen=True):
    """Pod to node."""

    pod: PodDemand
    node: str


class Unplaced(msgspec.Struct, frozen=True):
    """A pod without a place, and why, in the words of the Kubernetes scheduler."""

    pod: PodDemand
    message: str


Placement = tuple[list[Binding], list[Unplaced]]
Free = dict[str, dict[str, int]]


def place(nodes: Iterable[NodeRoom], pods: Iterable[PodDemand]) -> Placement:
    """Places the pods without a node, oldest gang first, given what the others use."""
    rooms = {node.name: node for node in sorted(nodes, key=lambda each: each.name)}
    everything = list(pods)
    free: Free = {name: dict(room.allocatable) for name, room in rooms.items()}
    for pod in everything:
        if pod.node in free:
            _take(free[pod.node], pod)
    gangs: dict[tuple[str, ...], list[PodDemand]] = {}
    for pod in everything:
        if not pod.node:
            gangs.setdefault(pod.gang or (pod.uid,), []).append(pod)
    order = sorted(
        gangs.values(),
        key=lambda gang: min((pod.created, pod.namespace, pod.name) for pod in gang),
    )
    bound: list[Binding] = []
    unplaced: list[Unplaced] = []
    for gang in order:
        found = _place_gang(rooms, free, gang)
        if found is None:
            unplaced.extend(Unplaced(pod, _why_not(rooms, free, pod, gang)) for pod in gang)
            continue
        for binding in found:
            _take(free[binding.node], binding.pod)
        bound.extend(found)
    return bound, unplaced


def _place_gang(
    rooms: Mapping[str, NodeRoom], free: Free, gang: Sequence[PodDemand]
) -> list[Binding] | None:
    """A place for every pod of a gang, or None."""
    ordered = sorted(gang, key=lambda pod: (-_size(pod), pod.name, pod.uid))
    for fullest_first in (True, False):
        left = {name: dict(amounts) for name, amounts in free.items()}
        found: list[Binding] = []
        for pod in ordered:
            node = _best_node(rooms, left, pod, fullest_first)
            if node is None:
                break
            _take(left[node], pod)
            found.append(Binding(pod, node))
        else:
            return found
    return None


def _best_node(
    rooms: Mapping[str, NodeRoom], free: Free, pod: PodDemand, fullest_first: bool
) -> str | None:
    fitting = [
        name
        for name, room in rooms.items()
        if not _refusal(room, pod) and not _lacking(room, free[name], pod)
    ]
    sign = 1 if fullest_first else -1
    return min(fitting, key=lambda name: (sign * _left_over(free[name], pod), name), default=None)


def _size(pod: PodDemand) -> int:
    """What decides how hard a pod is to place: its GPUs before its cores."""
    return _scarce(pod.requests) * 1_000_000 + pod.requests.get("cpu", 0)


def _left_over(free: Mapping[str, int], pod: PodDemand) -> int:
    """What a node would have left; GPUs weigh most, since they are what jobs compete for."""
    gpus = _scarce(free) - _scarce(pod.requests)
    return gpus * 1_000_000 + free.get("cpu", 0) - pod.requests.get("cpu", 0)


def _scarce(amounts: Mapping[str, int]) -> int:
    return sum(amount for resource, amount in amounts.items() if _extended(resource))


def _extended(resource: str) -> bool:
    """Extended resources have a domain in their name: they exist only where declared."""
    return "/" in resource


def _take(free: dict[str, int], pod: PodDemand) -> None:
    for resource, amount in {**pod.requests, "pods": 1}.items():
        if resource in free:
            free[resource] -= amount


def _lacking(room: NodeRoom, free: Mapping[str, int], pod: PodDemand) -> list[str]:
    """The resources of which a node has too little left for a pod."""
    lacking = [
        resource
        for resource, amount in sorted(pod.requests.items())
        if amount > 0
        and (amount > free[resource] if resource in room.allocatable else _extended(resource))
    ]
    if "pods" in free and free["pods"] < 1:
        lacking.append("pods")
    return lacking


def _refusal(room: NodeRoom, pod: PodDemand) -> str:
    """Why a node is out of the question for a pod whatever is free on it; empty when it is not."""
    tolerations = pod.selection.tolerations
    if not room.ready:
        return "node(s) were not ready"
    if room.unschedulable and not any(each.tolerates(_UNSCHEDULABLE) for each in tolerations):
        return "node(s) were unschedulable"
    for taint in room.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            each.tolerates(taint) for each in tolerations
        ):
            value = f": {taint.value}" if taint.value else ""
            return f"node(s) had untolerated taint {{{taint.key}{value}}}"
    labels = {NAME_LABEL: room.name, **room.labels}
    wanted = pod.selection.labels.items()
    affine = not pod.selection.terms or any(
        term and matches(term, labels) for term in pod.selection.terms
    )
    if not affine or any(labels.get(key) != value for key, value in wanted):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def _why_not(
    rooms: Mapping[str, NodeRoom], free: Free, pod: PodDemand, gang: Sequence[PodDemand]
) -> str:
    """The scheduler's sentence: how many nodes, and how many of them are out for which reason."""
    reasons: dict[str, int] = {}
    fits = 0
    for name, room in rooms.items():
        refusal = _refusal(room, pod)
        lacking = [f"Insufficient {each}" for each in _lacking(room, free[name], pod)]
        for reason in [refusal] if refusal else lacking:
            reasons[reason] = reasons.get(reason, 0) + 1
        fits += not refusal and not lacking
    total = len(rooms)
    if fits:
        return (
            f"0/{total} nodes are available: the {len(gang)} pods of this attempt do not all fit "
            "at the same time."
        )
    if not rooms:
        return "no nodes available to schedule pods"
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{total} nodes are available: {', '.join(parts)}."
