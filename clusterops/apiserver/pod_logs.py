"""`kubectl logs`: the log files of a pod's containers, filtered, and followed as they grow."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from clusterops.apiserver.answers import send_body
from clusterops.apiserver.log_files import LogReader, LogWindow, parse_time
from clusterops.apiserver.refusals import StatusError, bad_request, not_found
from clusterops.apiserver.request import Request, Target
from clusterops.apiserver.state import State
from clusterops.apiserver.stored import decode
from clusterops.apiserver.stream import Stream

TEXT = b"text/plain"
# How often a followed file is looked at: often while it grows, less when it does not.
POLL_SECONDS, SLOWEST_POLL_SECONDS = 0.05, 0.5


class PodLogs:
    """Answers to GET of pods/log. `directory` is where node agents write; None when there are none."""

    def __init__(
        self,
        state: State,
        reader: LogReader | None,
        now: Callable[[], datetime],
        closing: Callable[[], bool],
    ) -> None:
        self._state = state
        self._reader = reader
        self._now = now
        self._closing = closing

    async def serve(self, request: Request, target: Target) -> None:
        """The log of one container."""
        pod = self._pod(target)
        container = _container(pod, request.query.get("container", ""))
        window = self._window(request)
        restart = _restart(pod, container, request.flag("previous"))
        if restart is None:
            await send_body(request.send, 204, b"", ((b"content-type", TEXT),))
            return
        if self._reader is None:
            raise StatusError(500, "InternalError", "this server was started without pod logs")
        log = await asyncio.to_thread(
            self._reader.open,
            pod["metadata"]["namespace"],
            pod["metadata"]["name"],
            pod["metadata"]["uid"],
            container,
            restart,
        )
        stream = Stream(request.send, request.receive)
        try:
            await stream.begin(TEXT)
            piece = await asyncio.to_thread(log.read_first, window)
            while piece:
                await stream.send(piece)
                piece = await asyncio.to_thread(log.read_more, window)
            if request.flag("follow"):
                await self._follow(stream, log, window, target, pod, container, restart)
        finally:
            log.close()
            await stream.end()

    async def _follow(
        self,
        stream: Stream,
        log: Any,
        window: LogWindow,
        target: Target,
        pod: dict[str, Any],
        container: str,
        restart: int,
    ) -> None:
        pause = POLL_SECONDS
        while not stream.gone and not self._closing() and not window.exhausted:
            # Asked before reading: what the container wrote before it ended is still read.
            ended = self._ended(target, pod["metadata"]["uid"], container, restart)
            piece = await asyncio.to_thread(log.read_more, window)
            if piece:
                await stream.send(piece)
                pause = POLL_SECONDS
            elif ended:
                return
            else:
                await stream.wait(None, pause)
                pause = min(pause * 1.5, SLOWEST_POLL_SECONDS)

    def _pod(self, target: Target) -> dict[str, Any]:
        collection = self._state.collection(target.kind.group_resource)
        stored = collection.objects.get(target.key)
        if stored is None:
            raise not_found(target.kind, target.name)
        return decode(stored.body)

    def _ended(self, target: Target, uid: str, container: str, restart: int) -> bool:
        """Whether that run of the container is over, or the pod is gone."""
        collection = self._state.collection(target.kind.group_resource)
        stored = collection.objects.get(target.key)
        if stored is None or stored.uid != uid:
            return True
        pod = decode(stored.body)
        status = _container_status(pod, container)
        if status.get("restartCount", 0) != restart or "terminated" in (status.get("state") or {}):
            return True
        return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def _window(self, request: Request) -> LogWindow:
        since: datetime | None = None
        query = request.query
        if seconds := request.number("sinceSeconds"):
            since = self._now() - timedelta(seconds=seconds)
        elif text := query.get("sinceTime"):
            try:
                since = parse_time(text)
            except ValueError:
                raise bad_request(f'invalid sinceTime "{text[:40]}"') from None
        limit = request.number("limitBytes")
        if limit == 0:
            raise bad_request("limitBytes must be greater than 0")
        return LogWindow(
            tail=request.number("tailLines"),
            since=since,
            timestamps=request.flag("timestamps"),
            bytes_left=limit,
        )


def _container(pod: dict[str, Any], name: str) -> str:
    """The container that is meant. Raises 400."""
    spec, pod_name = pod.get("spec") or {}, pod["metadata"]["name"]
    names = [container["name"] for container in spec.get("containers") or ()]
    initial = [container["name"] for container in spec.get("initContainers") or ()]
    if name:
        if name not in names and name not in initial:
            raise bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    if len(names) != 1:
        listed = " ".join(names)
        raise bad_request(
            f"a container name must be specified for pod {pod_name}, choose one of: [{listed}]"
        )
    return str(names[0])


def _container_status(pod: dict[str, Any], name: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    for group in ("containerStatuses", "initContainerStatuses"):
        for found in status.get(group) or ():
            if found.get("name") == name:
                return dict(found)
    return {}


def _restart(pod: dict[str, Any], container: str, previous: bool) -> int | None:
    """The number of the run to show; None for a pod without a node. Raises 400 when none is there."""
    pod_name = pod["metadata"]["name"]
    if not (pod.get("spec") or {}).get("nodeName"):
        return None
    status = _container_status(pod, container)
    count = int(status.get("restartCount", 0))
    state = status.get("state") or {}
    if previous:
        if count < 1:
            raise bad_request(
                f'previous terminated container "{container}" in pod "{pod_name}" not found'
            )
        return count - 1
    if "running" in state or "terminated" in state:
        return count
    if count > 0:
        return count - 1  # waiting to start again: the last run is what there is to read
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise bad_request(f'container "{container}" in pod "{pod_name}" is waiting to start: {reason}')
