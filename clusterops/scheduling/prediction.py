"""What a workload would do to others if it were considered now: asked before it is let in.

The job's operator asks this to let predicted victims save first, `submit --what-if` to show them.
"""

import msgspec

from clusterops.scheduling.cycle import decide
from clusterops.scheduling.decisions import Admit, Preempt, Wait
from clusterops.scheduling.nomination import nominate, obstacle
from clusterops.scheduling.objects import Workload
from clusterops.scheduling.preemption import Target
from clusterops.scheduling.snapshot import Snapshot


class Forecast(msgspec.Struct, frozen=True):
    """What the next round would bring a workload: admission, victims, or the reason to wait."""

    admitted: bool
    victims: tuple[Preempt, ...] = ()
    waiting: str = ""


def would_preempt(snapshot: Snapshot, workload: Workload) -> tuple[Target, ...]:
    """The victims if the workload stood at the head of its queue now, gated or not.

    Empty when it fits as it is, when nobody may be preempted for it, or when that would not help.
    """
    queue = snapshot.queues.get(snapshot.queue_of(workload))
    if queue is None or obstacle(snapshot, queue, workload)[0]:
        return ()
    return nominate(snapshot, queue, workload).targets


def forecast(snapshot: Snapshot, workload: Workload, now: float) -> Forecast:
    """What the next round would decide about a workload that is submitted (or ungated) now."""
    ready = msgspec.structs.replace(workload, gates="")
    world = msgspec.structs.replace(snapshot, pending={**snapshot.pending, ready.uid: ready})
    decisions = decide(world, now)
    admitted = any(isinstance(each, Admit) and each.workload.uid == ready.uid for each in decisions)
    victims = tuple(
        each for each in decisions if isinstance(each, Preempt) and each.preemptor.uid == ready.uid
    )
    waiting = next(
        (
            each.message
            for each in decisions
            if isinstance(each, Wait) and each.workload.uid == ready.uid
        ),
        "",
    )
    return Forecast(admitted, victims, waiting)
