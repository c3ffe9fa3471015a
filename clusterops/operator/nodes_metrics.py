"""What is counted of remediations, for Prometheus. Labels are closed lists: no node's name is one."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from clusterops.api.node_health import RemediationState as State
from clusterops.api.node_health import Rung
from clusterops.core.remediation_view import Remedy

_REPAIR_SECONDS = (30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 86_400, 604_800)


class NodeMetrics:
    """Counters since this process started."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Without a registry they count for nobody."""
        registry = registry or CollectorRegistry()
        self._steps = Counter(
            "clusterops_remediation_steps",
            "Steps of remediations by rung and the state that was reached.",
            ["rung", "state"],
            registry=registry,
        )
        self._orders = Counter(
            "clusterops_remediation_orders",
            "Orders to reset or reboot, by what became of them: succeeded, failed, stale, dry_run.",
            ["rung", "result"],
            registry=registry,
        )
        self.tickets = Counter(
            "clusterops_remediation_tickets",
            "Attempts to open a ticket: opened or found, or refused by the ticket system.",
            ["result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "clusterops_remediation_seconds",
            "From the beginning of a remediation to the node's proven return.",
            registry=registry,
            buckets=_REPAIR_SECONDS,
        )
        for rung in Rung:
            for state in State:
                self._steps.labels(rung=rung.value, state=state.value)

    def stepped(self, before: Remedy | None, after: Remedy, now: float) -> None:
        """A remediation was written down in a new state."""
        if before is not None and (before.key, before.state) == (after.key, after.state):
            return
        self._steps.labels(rung=after.rung.value, state=after.state.value).inc()
        if after.state is State.DONE and after.begun_at:
            self._seconds.observe(max(0.0, now - after.begun_at))

    def ordered(self, rung: Rung, result: str) -> None:
        """What became of an order."""
        self._orders.labels(rung=rung.value, result=result).inc()
