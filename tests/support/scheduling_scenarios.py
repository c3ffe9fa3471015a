"""A row of a table of golden scenarios, and the snapshot it stands for."""

from typing import NamedTuple

from support.scheduling_world import world

from clusterops.scheduling.objects import ClusterQueue, Cohort, ResourceFlavor, Workload
from clusterops.scheduling.snapshot import Snapshot


class Row(NamedTuple):
    """Queues and workloads in; admissions and preemptions out, as `scheduling_world.short` says."""

    name: str
    queues: list[ClusterQueue]
    workloads: list[Workload]
    expected: list[str]
    cohorts: tuple[Cohort, ...] = ()
    flavors: tuple[ResourceFlavor, ...] | None = None


def given(row: Row, *, backwards: bool = False) -> Snapshot:
    """The snapshot of a row; `backwards` lists everything in the opposite order."""
    step = -1 if backwards else 1
    return world(
        row.queues[::step],
        row.workloads[::step],
        cohorts=row.cohorts[::step],
        flavors=row.flavors,
    )
