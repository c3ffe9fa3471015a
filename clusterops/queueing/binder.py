"""Binds waiting pods to nodes: the part of a Kubernetes scheduler that one machine needs.

Only pods without a node that ask for `default-scheduler` are bound. A gang is the pods of one
attempt of a job; it is bound when all its pods exist and all of them fit at the same time. A gang
of which some pods are bound already (this process died half way) is completed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from clusterops.api import names
from clusterops.kube.client import Client
from clusterops.kube.errors import ApiError, KubeError, NotFound
from clusterops.kube.events import EventRecorder
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Key, Store
from clusterops.queueing import transitions
from clusterops.queueing.placement import Binding, NodeRoom, PodDemand, Unplaced, place
from clusterops.scheduling import parse, quantities
from clusterops.scheduling.objects import NodeSelection

log = logging.getLogger(__name__)

Json = dict[str, Any]

_RETRY_SECONDS = 1.0
_MATCH_FIELD_NAME = "metadata.name"


class SeenPod(msgspec.Struct, frozen=True):
    """A pod as the binder keeps it. `size` is the number of pods its gang says it has, 0 unknown."""

    reference: Json
    demand: PodDemand
    waits: bool
    over: bool
    scheduled: tuple[str, str]
    size: int = 0


def see_pod(raw: Json) -> SeenPod:
    """What the binder reads of a pod; one whose requests are no quantities never fits anywhere."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels = metadata.get("labels") or {}
    job, attempt = labels.get(names.LABEL_JOB), labels.get(names.LABEL_ATTEMPT)
    gang = (metadata["namespace"], job, attempt) if job and attempt else ()
    over = status.get("phase") in ("Succeeded", "Failed")
    leaving = "deletionTimestamp" in metadata
    scheduler = spec.get("schedulerName") or "default-scheduler"
    waits = (
        not spec.get("nodeName")
        and not over
        and not leaving
        and scheduler == "default-scheduler"
        and not spec.get("schedulingGates")
    )
    demand = PodDemand(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        requests=_requests(spec),
        selection=_selection(spec),
        node=spec.get("nodeName") or "",
        gang=gang,
        created=parse.seconds(metadata.get("creationTimestamp")),
    )
    said = transitions.condition(status, "PodScheduled") or {}
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            key: metadata[key]
            for key in ("name", "namespace", "uid", "resourceVersion")
            if key in metadata
        },
    }
    scheduled = (str(said.get("status") or ""), str(said.get("message") or ""))
    return SeenPod(reference, demand, waits, over, scheduled, _gang_size(spec))


def see_node(raw: Json) -> NodeRoom:
    """What the binder reads of a node."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    declared = status.get("allocatable") or status.get("capacity") or {}
    return NodeRoom(
        name=raw["metadata"]["name"],
        labels=dict(raw["metadata"].get("labels") or {}),
        taints=tuple(parse.taint(each) for each in spec.get("taints") or ()),
        allocatable={name: quantities.parse(name, text) for name, text in declared.items()},
        ready=transitions.is_true(status, "Ready"),
        unschedulable=spec.get("unschedulable") is True,
    )


class Binder:
    """Watches pods and nodes and binds. `run` works until cancelled."""

    def __init__(self, client: Client, events: EventRecorder, clock: Callable[[], float]) -> None:
        """`clock` gives wall time in epoch seconds, for conditions."""
        self._client = client
        self._events = events
        self._clock = clock
        self._wanted = asyncio.Event()
        self.pods: Store[SeenPod] = Store()
        self.nodes: Store[NodeRoom] = Store()
        self._bound: dict[Key, tuple[str, str]] = {}  # own bindings: uid and node, until seen
        self._reflectors = (
            Reflector(client, names.NODES, self.nodes, see_node, self._changed),
            Reflector(client, names.PODS, self.pods, see_pod, self._changed),
        )

    async def run(self) -> None:
        """Binds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")
            group.create_task(self._rounds(), name="bind pods")

    async def _rounds(self) -> None:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(0)  # changes that arrived together make one round
            self._wanted.clear()
            if all(reflector.synced for reflector in self._reflectors):
                await self.round()

    def _changed(self, _: Key) -> None:
        self._wanted.set()

    async def round(self) -> None:
        """Places all waiting pods and writes the result."""
        bindings, unplaced = place(self.nodes.values(), self._demands())
        for binding in bindings:
            await self._attempt(self._bind(binding))
        for pod in unplaced:
            await self._attempt(self._explain(pod))

    def _demands(self) -> list[PodDemand]:
        """Pods that use or want a node. A gang that is not complete yet waits unseen."""
        present: dict[tuple[str, ...], int] = {}
        for seen in self.pods.values():
            if seen.demand.gang:
                present[seen.demand.gang] = present.get(seen.demand.gang, 0) + 1
        demands = []
        for key, seen in self.pods.items():
            if seen.over:
                continue
            demand = self._with_own_binding(key, seen.demand)
            complete = present.get(demand.gang, 0) >= seen.size
            if demand.node or (seen.waits and complete):
                demands.append(demand)
        return demands

    def _with_own_binding(self, key: Key, demand: PodDemand) -> PodDemand:
        """A pod bound a moment ago counts as bound before the watch says so."""
        own = self._bound.get(key)
        if own is None:
            return demand
        if demand.node or own[0] != demand.uid:
            del self._bound[key]
            return demand
        return msgspec.structs.replace(demand, node=own[1])

    async def _attempt(self, write: Any) -> None:
        try:
            await write
        except NotFound:
            pass  # the pod went away meanwhile
        except KubeError as error:
            log.warning("binding pods: %s; trying again", error)
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wanted.set)

    async def _bind(self, binding: Binding) -> None:
        pod = binding.pod
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        try:
            await self._client.create_subresource(
                names.PODS, pod.namespace, pod.name, "binding", body
            )
        except ApiError as error:
            if error.status != 409:
                raise
            return  # bound or replaced by another already; the watch will tell
        self._bound[(pod.namespace, pod.name)] = (pod.uid, binding.node)
        seen = self.pods.get((pod.namespace, pod.name))
        if seen is not None:
            text = f"Successfully assigned {pod.namespace}/{pod.name} to {binding.node}"
            self._events.record(seen.reference, "Normal", "Scheduled", text)

    async def _explain(self, unplaced: Unplaced) -> None:
        """PodScheduled=False with the reason, written when it changes."""
        pod = unplaced.pod
        seen = self.pods.get((pod.namespace, pod.name))
        if seen is None or seen.scheduled == ("False", unplaced.message):
            return

        def say(current: Json) -> Json | None:
            status = current.get("status") or {}
            if current["metadata"].get("uid") != pod.uid or current["spec"].get("nodeName"):
                return None
            return transitions.with_condition(
                status,
                "PodScheduled",
                False,
                "Unschedulable",
                unplaced.message,
                generation=int(current["metadata"].get("generation") or 0),
                now=self._clock(),
            )

        await self._client.update_status(names.PODS, pod.namespace, pod.name, say)
        self._events.record(seen.reference, "Warning", "FailedScheduling", unplaced.message)


def _requests(spec: Json) -> dict[str, int]:
    try:
        return parse.pod_requests(spec)
    except quantities.InvalidQuantity:
        return {"unreadable/quantity": 1}  # no node has any of it


def _selection(spec: Json) -> NodeSelection:
    """Where the pod may go, `matchFields` on the node's name included."""
    selection = parse.node_selection(spec)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        tuple(term)
        + tuple(
            parse.node_name_term(each)
            for each in raw.get("matchFields") or ()
            if each.get("key") == _MATCH_FIELD_NAME
        )
        for term, raw in zip(selection.terms, required.get("nodeSelectorTerms") or (), strict=True)
    ]
    return msgspec.structs.replace(selection, terms=tuple(terms))


def _gang_size(spec: Json) -> int:
    """How many pods the attempt has, from the environment its processes are given; 0 if unsaid."""
    for container in spec.get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == names.ENV_PODS:
                text = str(variable.get("value") or "")
                return int(text) if text.isdigit() else 0
    return 0
