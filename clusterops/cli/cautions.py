"""What a person should know about a job before it costs them: pure, from the job and the nodes.

Said by `submit` when the job is new, and by `explain` as long as it matters.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from clusterops.api.names import RESOURCE_GPU
from clusterops.api.text import listed
from clusterops.scheduling import quantities
from clusterops.scheduling.parse import pod_requests

Json = Mapping[str, Any]


def starts_over(job: Json) -> str:
    """That a preemption costs the job all it has done; empty for one that saves.

    One that reports durable steps saves by means of its own, whatever its manifest says.
    """
    progress = (job.get("status") or {}).get("progress") or {}
    saves = (job["spec"].get("checkpoint") or {}).get("directory")
    if saves or progress.get("durableStep") is not None:
        return ""
    return "it has no checkpoint directory: when it is preempted, it starts over"


def outsized(job: Json, nodes: Iterable[Json]) -> str:
    """Why no node could ever hold one of the job's pods, naming the largest; empty when one could.

    Also empty where no node is known: they may be somebody else's to see, or come with the jobs.
    """
    rooms = {each["metadata"]["name"]: _allocatable(each) for each in nodes}
    try:
        asked = pod_requests(job["spec"]["template"].get("spec") or {})
    except quantities.InvalidQuantity:
        return ""  # the queue says so, in its own words
    if not rooms or any(_holds(room, asked) for room in rooms.values()):
        return ""
    for resource, amount in sorted(asked.items(), key=lambda each: each[0] != RESOURCE_GPU):
        largest = max(sorted(rooms), key=lambda name: _most(rooms[name], resource, amount))
        most = _most(rooms[largest], resource, amount)
        if most < amount:
            show = quantities.show
            return (
                f"each of its pods asks for {show(resource, amount)} {resource}, and the largest "
                f"node, {largest}, has {show(resource, most)}"
            )
    wanted = listed((f"{quantities.show(*each)} {each[0]}" for each in asked.items()), "and")
    largest = max(sorted(rooms), key=lambda name: rooms[name].get(RESOURCE_GPU, 0))
    return (
        f"no single node has {wanted} for one of its pods; the one with the most GPUs is {largest}"
    )


def _allocatable(node: Json) -> dict[str, int]:
    declared = (node.get("status") or {}).get("allocatable") or {}
    amounts = {}
    for resource, text in declared.items():
        try:
            amounts[resource] = quantities.parse(resource, text)
        except quantities.InvalidQuantity:
            continue  # as if it were not declared
    return amounts


def _holds(room: Mapping[str, int], asked: Mapping[str, int]) -> bool:
    return all(_most(room, resource, amount) >= amount for resource, amount in asked.items())


def _most(room: Mapping[str, int], resource: str, asked: int) -> int:
    """What an empty node has. Extended resources exist only where declared, cores everywhere."""
    return room.get(resource, 0 if "/" in resource else asked)
