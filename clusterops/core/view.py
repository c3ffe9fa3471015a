"""One job at one moment, as the parts of the lifecycle hand it around."""

from datetime import datetime
from typing import NamedTuple

from clusterops.core import actions
from clusterops.core.conditions import seconds_since
from clusterops.core.observed import JobStatus, Observed, TrainingJob
from clusterops.core.observed_pods import Pod
from clusterops.core.settings import Settings


class View(NamedTuple):
    """The arguments of `decide`, and what several parts derive from them."""

    job: TrainingJob
    observed: Observed
    now: datetime
    settings: Settings

    @property
    def alive(self) -> list[Pod]:
        """Pods of any attempt that may still run, by name."""
        return sorted((pod for pod in self.observed.pods if pod.alive), key=lambda pod: pod.name)

    def write(self, status: JobStatus, *, certain: bool = True) -> list[actions.Action]:
        """The status write, unless it would change nothing."""
        if status == self.job.status:
            return []
        return [actions.WriteStatus(status, certain)]

    def lost(self, pod: Pod) -> str:
        """Why the pod's node must be given up for dead, in words; empty while it need not be."""
        name = pod.spec.node_name
        if not name:
            return ""
        fresh = self.settings.fresh_heartbeat_seconds
        current = pod.attempt == self.job.status.attempt
        if current and any(
            report.rank // self.job.spec.processes_per_pod == pod.rank
            and report.age_seconds < fresh
            for report in self.observed.reports
        ):
            return ""  # unreachable for the API server is not dead
        node = self.observed.nodes.get(name)
        if node is None:
            return f"node {name} no longer exists"
        silent = seconds_since(node.unready_since, self.now)
        if silent > self.settings.node_lost_seconds:
            return f"node {name} has not been Ready for {silent:.0f} seconds"
        return ""

    def forget_lost(self) -> list[actions.Action]:
        """Deletions of pods whose node will never confirm their end."""
        deletions: list[actions.Action] = []
        for pod in self.alive:
            why = self.lost(pod)
            if why:
                deletions.append(actions.DeletePod(pod.name, pod.metadata.uid, 0, why))
        return deletions

    def until_node_lost(self) -> float | None:
        """Seconds until the next node that is not Ready counts as lost; None when all are well."""
        waits = []
        for pod in self.alive:
            node = self.observed.nodes.get(pod.spec.node_name)
            since = node.unready_since if node is not None else None
            if since is not None:
                gone = seconds_since(since, self.now)
                waits.append(max(1.0, self.settings.node_lost_seconds - gone + 0.5))
        return min(waits, default=None)
