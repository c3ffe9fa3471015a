"""How many nodes may be taken out at once, and when automation has to stop and ask. Pure.

A driver that breaks a third of the nodes is one incident of software: a machine that reboots and
reports them all would make it worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from clusterops.api.node_health import Rung


@dataclass(frozen=True)
class Budgets:
    """Limits; shares are of the GPU nodes, and each share allows at least one node."""

    share_at_once: float = 0.1
    per_rack: int = 1
    share_per_cause: float = 0.05
    """Nodes with one cause, at once and within the window: more is no fault of single nodes."""
    per_window: int = 10
    window_seconds: int = 3600
    per_node: int = 5
    per_node_seconds: int = 7 * 86_400


@dataclass(frozen=True)
class Attempt:
    """A remediation that was begun."""

    node: str
    incident: str
    cause: str
    rung: Rung
    at: float
    """Seconds on any clock that `now` is read from too."""
    failed: bool = False


@dataclass(frozen=True)
class FleetNode:
    """What budgets need to know of a node."""

    name: str
    gpus: int
    rack: str = ""
    cause: str = ""
    """What it is being remedied for, empty when it is not."""

    @property
    def out(self) -> bool:
        """Whether it is out of use for a remediation."""
        return bool(self.cause)


@dataclass(frozen=True)
class Fleet:
    """All nodes, and what was begun lately."""

    nodes: tuple[FleetNode, ...]
    attempts: tuple[Attempt, ...] = ()


def refusal(node: FleetNode, cause: str, fleet: Fleet, budgets: Budgets, now: float) -> str | None:
    """Why a remediation may not begin now, in words; None when it may."""
    others = [each for each in fleet.nodes if each.gpus > 0 and each.name != node.name]
    total = len(others) + (node.gpus > 0)
    out = [each for each in others if each.out]
    most = allowed(budgets.share_at_once, total)
    if len(out) >= most:
        return f"{len(out)} of {total} GPU nodes are out already, {most} may be at once"
    if node.rack:
        near = sum(each.rack == node.rack for each in out)
        if near >= budgets.per_rack:
            return f"{near} nodes of rack {node.rack} are out already, {budgets.per_rack} may be"
    return _begun(node, cause, fleet, budgets, now, total) or _same_cause(
        node, cause, fleet, budgets, now, total
    )


def allowed(share: float, nodes: int) -> int:
    """A share in nodes: at least one, or a small cluster could never repair anything."""
    return max(1, int(share * nodes))


def _begun(
    node: FleetNode, cause: str, fleet: Fleet, budgets: Budgets, now: float, total: int
) -> str | None:
    del cause, total
    # Several rungs for one incident are one remediation.
    recent = _distinct(fleet.attempts, now - budgets.window_seconds)
    if len(recent) >= budgets.per_window:
        return (
            f"{len(recent)} remediations were begun within {budgets.window_seconds} s, "
            f"{budgets.per_window} may be"
        )
    own = [a for a in fleet.attempts if a.node == node.name]
    again = _distinct(own, now - budgets.per_node_seconds)
    if len(again) >= budgets.per_node:
        return (
            f"this node had {len(again)} remediations within {budgets.per_node_seconds} s, "
            "and a person has to look at it"
        )
    return None


def _same_cause(
    node: FleetNode, cause: str, fleet: Fleet, budgets: Budgets, now: float, total: int
) -> str | None:
    since = now - budgets.window_seconds
    hit = {each.name for each in fleet.nodes if each.cause == cause and each.name != node.name}
    hit |= {
        each.node
        for each in fleet.attempts
        if each.cause == cause and each.at >= since and each.node != node.name
    }
    most = allowed(budgets.share_per_cause, total)
    if len(hit) >= most:
        return (
            f"{len(hit)} other nodes have {cause} within {budgets.window_seconds} s: that is one "
            "incident of software or site, and a person has to look at it"
        )
    return None


def _distinct(attempts: Sequence[Attempt], since: float) -> list[tuple[str, str]]:
    return sorted({(a.node, a.incident) for a in attempts if a.at >= since})
