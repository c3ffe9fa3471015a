"""Logs of a job's pods as lines: read once and merged by time, or followed across attempts."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from clusterops.api.names import LABEL_ATTEMPT, LABEL_JOB, LABEL_RANK, PODS, TRAINING_JOBS
from clusterops.cli import jobs, watching
from clusterops.cli.connection import Session
from clusterops.cli.output import parse_time
from clusterops.kube.errors import BadRequest, NotFound, Unreachable

# After the job's end its pods' logs are at their end too; this is for a server that is slow.
LAST_LINES_SECONDS = 15.0
PAUSE_SECONDS = 0.5
PATIENCE_SECONDS = 60.0
STARTED = ("Running", "Succeeded", "Failed")


class Line(NamedTuple):
    """One line: of a rank, or, with rank None, about the job itself."""

    moment: datetime
    rank: int | None
    text: str


def rank_of(pod: dict[str, Any]) -> int:
    """The rank on a pod's label; -1 when there is none."""
    return _number(pod, LABEL_RANK)


def attempt_of(pod: dict[str, Any]) -> int:
    """The attempt on a pod's label; -1 when there is none."""
    return _number(pod, LABEL_ATTEMPT)


def _number(pod: dict[str, Any], label: str) -> int:
    text = (pod["metadata"].get("labels") or {}).get(label, "")
    return int(text) if text.isascii() and text.isdigit() else -1


async def pods_of(session: Session, job: str) -> list[dict[str, Any]]:
    """The job's pods that still exist, of all attempts, by attempt and rank."""
    found, _ = await session.client.list(
        PODS, session.namespace, label_selector=f"{LABEL_JOB}={job}"
    )
    return sorted(found, key=lambda pod: (attempt_of(pod), rank_of(pod)))


async def lines_of(
    session: Session, pod: dict[str, Any], *, tail: int | None = None, follow: bool = False
) -> AsyncIterator[Line]:
    """A pod's log line by line; nothing when its container never started.

    Raises:
        Unreachable: the connection broke.
    """
    metadata = pod["metadata"]
    pieces = session.client.pod_log(
        metadata["namespace"], metadata["name"], follow=follow, tail_lines=tail, timestamps=True
    )
    rest = b""
    moment = datetime.fromtimestamp(0, UTC)
    async with aclosing(pieces) as stream:  # type: ignore[type-var] # it is a generator
        async for piece in stream:
            *whole, rest = (rest + piece).split(b"\n")
            for raw in whole:
                line = _line(raw, rank_of(pod), moment)
                moment = line.moment
                yield line
    if rest:
        yield _line(rest, rank_of(pod), moment)


def _line(raw: bytes, rank: int, before: datetime) -> Line:
    """A line with its time; one without, or out of order, keeps its place behind the one before."""
    text = raw.decode("utf-8", "replace")
    stamp, _, words = text.partition(" ")
    moment = parse_time(stamp) if "T" in stamp else None
    return Line(before, rank, text) if moment is None else Line(max(moment, before), rank, words)


async def read_once(
    session: Session, pods: Sequence[dict[str, Any]], events: Sequence[Line], tail: int | None
) -> list[Line]:
    """The logs of several pods and the job's events, merged by time."""

    async def whole(pod: dict[str, Any]) -> list[Line]:
        with suppress(BadRequest, NotFound):  # it never started, or is just gone
            return [line async for line in lines_of(session, pod, tail=tail)]
        return []

    logs = await asyncio.gather(*(whole(pod) for pod in pods))
    return list(heapq.merge(*logs, events, key=lambda line: line.moment))


class Follower:
    """Follows a job's logs from its current attempt to its end, whatever happens in between."""

    def __init__(
        self,
        session: Session,
        job: str,
        *,
        ranks: Sequence[int] | None,
        write: Callable[[Line], None],
        tail: int | None = None,
    ) -> None:
        """`ranks` None = all. `write` gets each line; those about the job have rank None."""
        self._session = session
        self._job = job
        self._ranks = ranks
        self._write = write
        self._tail = tail
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._headline = ""
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, first_attempt: int) -> int:
        """Until the job has ended; the exit code of its outcome."""
        pods = asyncio.create_task(self._watch_pods(first_attempt))
        try:
            state = jobs.until_final(self._session, self._job, on_change=self._tell)
            ending = asyncio.create_task(state)
            watched: set[asyncio.Future[Any]] = {pods, ending, self._broken}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for over in (pods, self._broken):
                if over.done():
                    ending.cancel()
                    over.result()  # raises: both end in no other way
            last = await ending
            for pod in await pods_of(self._session, self._job):
                self._begin(pod, first_attempt)
            if self._streams:
                await asyncio.wait(self._streams.values(), timeout=LAST_LINES_SECONDS)
            if self._broken.done():
                self._broken.result()
            return jobs.outcome(last)
        finally:
            await _cancelled([pods, *self._streams.values()])
            self._broken.cancel()

    def _tell(self, job: dict[str, Any]) -> None:
        line = jobs.headline({**job, "status": _without_progress(job.get("status") or {})})
        attempt = (job.get("status") or {}).get("attempt") or 0
        said = f"{line} (attempt {attempt})" if attempt else line
        if said != self._headline:
            self._headline = said
            self._write(Line(datetime.now(UTC), None, said))

    async def _watch_pods(self, first_attempt: int) -> None:
        selector = f"{LABEL_JOB}={self._job}"
        following = watching.changes(
            self._session.client, PODS, self._session.namespace, label_selector=selector
        )
        async with aclosing(following) as changes:
            async for change in changes:
                if not change.gone:
                    self._begin(change.object, first_attempt)

    def _begin(self, pod: dict[str, Any], first_attempt: int) -> None:
        """Starts to read a pod's log, once, as soon as there is one."""
        uid = pod["metadata"]["uid"]
        started = (pod.get("status") or {}).get("phase") in STARTED
        wanted = self._ranks is None or rank_of(pod) in self._ranks
        if started and wanted and attempt_of(pod) >= first_attempt and uid not in self._streams:
            self._streams[uid] = asyncio.create_task(self._stream(pod))
            self._streams[uid].add_done_callback(self._ended)

    def _ended(self, stream: asyncio.Task[None]) -> None:
        """A stream that failed ends all: most often nobody reads what is written any more."""
        error = None if stream.cancelled() else stream.exception()
        if error is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _stream(self, pod: dict[str, Any]) -> None:
        """Writes a pod's log to its end; after a break it is read anew and the known part skipped."""
        loop = asyncio.get_running_loop()
        printed, tail, answered = 0, self._tail, loop.time()
        while True:
            seen = 0
            try:
                async for line in lines_of(self._session, pod, tail=tail, follow=True):
                    answered = loop.time()
                    seen += 1
                    if seen > printed:
                        self._write(line)
                        printed = seen
                return
            except NotFound:
                return
            except (BadRequest, Unreachable) as error:
                # Not started yet, or the server is away: neither says when to come back.
                if loop.time() - answered > PATIENCE_SECONDS:
                    # One rank's node may be gone while the job goes on elsewhere.
                    words = f"the log of rank {rank_of(pod)} cannot be read: {error}"
                    self._write(Line(datetime.now(UTC), None, words))
                    return
                await asyncio.sleep(PAUSE_SECONDS)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _without_progress(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key != "progress"}


async def events_of(session: Session, job: dict[str, Any]) -> list[Line]:
    """What befell the job, as lines of no rank."""
    from clusterops.api.names import EVENTS

    uid = job["metadata"]["uid"]
    found, _ = await session.client.list(
        EVENTS,
        session.namespace,
        field_selector=f"involvedObject.kind={TRAINING_JOBS.kind},involvedObject.uid={uid}",
    )
    lines = []
    for event in found:
        moment = parse_time(event.get("lastTimestamp") or event.get("eventTime"))
        if moment is not None:
            words = f"{event.get('reason') or ''}: {event.get('message') or ''}"
            lines.append(Line(moment, None, words))
    # Within one second the server's order, by name, is that in which they happened.
    return sorted(lines, key=lambda line: line.moment)
