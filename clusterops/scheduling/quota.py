"""The tree of quota: ClusterQueues under cohorts under cohorts, and usage as a value.

A `QuotaTree` is what the administrators configured; a `Usage` is what is held at one moment. Asking
"what if" makes another `Usage`; nothing is ever put back. A queue's quota beyond its lending limit
stays local: it never reaches the parent, and usage is charged to it first.
"""

from collections.abc import Iterable, Mapping

import msgspec

from clusterops.scheduling.objects import Amounts, ClusterQueue, Cohort, FlavorResource, Quota

_NONE: Mapping[FlavorResource, int] = {}


def queue_key(name: str) -> str:
    """The tree's key of a ClusterQueue."""
    return f"queue/{name}"


def cohort_key(name: str) -> str:
    """The tree's key of a cohort."""
    return f"cohort/{name}"


class Node(msgspec.Struct, frozen=True):
    """A queue or cohort. `subtree` is its quota with what its children lend; `local` never leaves it."""

    key: str
    name: str
    parent: str | None
    quotas: Mapping[FlavorResource, Quota]
    subtree: Mapping[FlavorResource, int]
    local: Mapping[FlavorResource, int]
    cohorts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    height: int = 0


class Usage(msgspec.Struct, frozen=True):
    """What is held at each node. Immutable: `QuotaTree.add` and `remove` return new ones."""

    held: Mapping[str, Mapping[FlavorResource, int]]

    def at(self, key: str, unit: FlavorResource) -> int:
        """The amount counted against a node's subtree quota."""
        return self.held.get(key, _NONE).get(unit, 0)

    def of(self, key: str) -> Mapping[FlavorResource, int]:
        """All amounts counted at a node."""
        return self.held.get(key, _NONE)


class QuotaTree(msgspec.Struct, frozen=True):
    """All nodes by key. Queues whose cohort is in a cycle are in `broken` and admit nothing."""

    nodes: Mapping[str, Node]
    broken: frozenset[str] = frozenset()

    def ancestors(self, key: str) -> list[Node]:
        """The cohorts above a node, nearest first."""
        found = []
        parent = self.nodes[key].parent
        while parent is not None:
            found.append(self.nodes[parent])
            parent = found[-1].parent
        return found

    def root(self, key: str) -> str:
        """The key of the tree a node stands in; a queue without a cohort is its own root."""
        above = self.ancestors(key)
        return above[-1].key if above else key

    def path(self, queue: str) -> str:
        """`/root/.../queue`, as messages show a queue's place."""
        names = [queue, *(node.name for node in self.ancestors(queue_key(queue)))]
        return "/" + "/".join(reversed(names))

    def quota(self, key: str, unit: FlavorResource) -> Quota:
        """A node's own quota of a flavor-resource; zero when it has none."""
        return self.nodes[key].quotas.get(unit, _NO_QUOTA)

    def nominal(self, key: str, unit: FlavorResource) -> int:
        """Quota of a node and what its children lend it."""
        return self.nodes[key].subtree.get(unit, 0)

    def local_available(self, usage: Usage, key: str, unit: FlavorResource) -> int:
        """Unused quota that this node does not lend."""
        return max(0, self.nodes[key].local.get(unit, 0) - usage.at(key, unit))

    def available(self, usage: Usage, key: str, unit: FlavorResource) -> int:
        """What a queue could take now, borrowing included; never below zero."""
        return max(0, self._available(usage, self.nodes[key], unit))

    def _available(self, usage: Usage, node: Node, unit: FlavorResource) -> int:
        subtree, held = node.subtree.get(unit, 0), usage.at(node.key, unit)
        if node.parent is None:
            return subtree - held
        above = self._available(usage, self.nodes[node.parent], unit)
        local = node.local.get(unit, 0)
        limit = node.quotas.get(unit, _NO_QUOTA).borrowing_limit
        if limit is not None:
            above = min(above, subtree - local - max(0, held - local) + limit)
        return max(0, local - held) + above

    def potential(self, key: str, unit: FlavorResource) -> int:
        """What a queue could take if nothing else ran: above this, a request never fits."""
        node = self.nodes[key]
        subtree = node.subtree.get(unit, 0)
        if node.parent is None:
            return subtree
        most = node.local.get(unit, 0) + self.potential(node.parent, unit)
        limit = node.quotas.get(unit, _NO_QUOTA).borrowing_limit
        return most if limit is None else min(most, subtree + limit)

    def exceeds(self, usage: Usage, key: str, unit: FlavorResource, more: int = 0) -> bool:
        """True when a node, given `more`, would be above its quota: it would borrow."""
        return usage.at(key, unit) + more > self.nominal(key, unit)

    def within(self, usage: Usage, key: str, units: Iterable[FlavorResource]) -> bool:
        """True when a node is within its quota in all the given flavor-resources."""
        return not any(self.exceeds(usage, key, unit) for unit in units)

    def fits(self, usage: Usage, key: str, wanted: Amounts) -> bool:
        """True when a queue could take all amounts now."""
        return all(amount <= self.available(usage, key, unit) for unit, amount in wanted.items())

    def add(self, usage: Usage, key: str, amounts: Amounts) -> Usage:
        """Usage with more held by a queue; only what exceeds local quota is charged above it."""
        held = dict(usage.held)
        self._charge(held, self.nodes[key], amounts)
        return Usage(held)

    def _charge(
        self, held: dict[str, Mapping[FlavorResource, int]], node: Node, amounts: Amounts
    ) -> None:
        here = dict(held.get(node.key, _NONE))
        above: dict[FlavorResource, int] = {}
        for unit, amount in amounts.items():
            before = here.get(unit, 0)
            here[unit] = before + amount
            local = node.local.get(unit, 0)
            spill = max(0, here[unit] - local) - max(0, before - local)
            if spill:
                above[unit] = spill
        held[node.key] = here
        if node.parent is not None and above:
            self._charge(held, self.nodes[node.parent], above)

    def remove(self, usage: Usage, key: str, amounts: Amounts) -> Usage:
        """Usage with less held by a queue: the exact opposite of `add`."""
        return self.add(usage, key, {unit: -amount for unit, amount in amounts.items()})

    def reach(self, usage: Usage, key: str, unit: FlavorResource, amount: int) -> tuple[int, bool]:
        """How far quota for `amount` is: height of the lowest subtree that has room for it.

        0 = without borrowing; the whole tree's height when nothing has room. Also says whether
        that subtree is smaller than the whole tree.
        """
        node = self.nodes[key]
        if node.parent is None or not self.exceeds(usage, key, unit, amount):
            return 0, node.parent is not None
        remaining = amount - self.local_available(usage, key, unit)
        above = self.ancestors(key)
        for ancestor in above:
            if not self.exceeds(usage, ancestor.key, unit, remaining):
                return ancestor.height, ancestor.parent is not None
            remaining -= self.local_available(usage, ancestor.key, unit)
        return above[-1].height, False


_NO_QUOTA = Quota(0)
EMPTY = Usage({})


def build(queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> QuotaTree:
    """The tree of all queues and cohorts. A cohort need not exist to be named."""
    queues = sorted(queues, key=lambda queue: queue.name)
    specs = {cohort.name: cohort for cohort in cohorts}
    for queue in queues:
        if queue.cohort:
            specs.setdefault(queue.cohort, Cohort(queue.cohort))
    for cohort in list(specs.values()):
        if cohort.parent:
            specs.setdefault(cohort.parent, Cohort(cohort.parent))
    cyclic = {name for name in specs if _in_cycle(name, specs)}
    nodes: dict[str, Node] = {}
    for queue in queues:
        parent = cohort_key(queue.cohort) if queue.cohort and queue.cohort not in cyclic else None
        own = {unit: quota.nominal for unit, quota in queue.quotas.items()}
        nodes[queue_key(queue.name)] = _node(
            queue_key(queue.name), queue.name, parent, queue.quotas, own
        )
    children: dict[str, list[str]] = {name: [] for name in specs}
    for name in sorted(specs):
        parent_name = specs[name].parent
        if parent_name and name not in cyclic:
            children[parent_name].append(name)
    members: dict[str, list[str]] = {name: [] for name in specs}
    for queue in queues:
        if queue.cohort:
            members[queue.cohort].append(queue.name)
    for name in sorted(set(specs) - cyclic, key=lambda name: (-_depth(name, specs), name)):
        _add_cohort(nodes, specs[name], children[name], members[name])
    broken = frozenset(queue.name for queue in queues if queue.cohort in cyclic)
    return QuotaTree(nodes, broken)


def _in_cycle(name: str, specs: Mapping[str, Cohort]) -> bool:
    """True when the way up from a cohort never ends."""
    seen: set[str] = set()
    while name:
        if name in seen:
            return True
        seen.add(name)
        name = specs[name].parent
    return False


def _depth(name: str, specs: Mapping[str, Cohort]) -> int:
    depth = 0
    while specs[name].parent:
        name = specs[name].parent
        depth += 1
    return depth


def _node(
    key: str,
    name: str,
    parent: str | None,
    quotas: Mapping[FlavorResource, Quota],
    subtree: Mapping[FlavorResource, int],
) -> Node:
    local = {
        unit: max(0, subtree.get(unit, 0) - quota.lending_limit)
        for unit, quota in quotas.items()
        if quota.lending_limit is not None
    }
    return Node(key, name, parent, quotas, subtree, local)


def _add_cohort(
    nodes: dict[str, Node], cohort: Cohort, children: list[str], members: list[str]
) -> None:
    """Adds a cohort whose children are there already, with what they lend it."""
    subtree = {unit: quota.nominal for unit, quota in cohort.quotas.items()}
    below = [cohort_key(name) for name in children]
    leaves = [queue_key(name) for name in members]
    height = 1 if below or leaves else 0
    for key in (*below, *leaves):
        child = nodes[key]
        height = max(height, child.height + 1)
        for unit, amount in child.subtree.items():
            subtree[unit] = subtree.get(unit, 0) + amount - child.local.get(unit, 0)
    parent = cohort_key(cohort.parent) if cohort.parent else None
    node = _node(cohort_key(cohort.name), cohort.name, parent, cohort.quotas, subtree)
    nodes[node.key] = msgspec.structs.replace(
        node, cohorts=tuple(below), queues=tuple(leaves), height=height
    )
