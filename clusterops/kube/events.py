"""Records core/v1 Events about objects, without ever making anybody wait.

The same event about the same object is one Event whose count grows, also while it waits to be sent.
What cannot be sent is dropped and counted: events inform people, nothing depends on them.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError, NotFound
from clusterops.kube.rate_limit import TokenBucket
from clusterops.kube.retry import RetryPolicy
from clusterops.kube.transport import JsonObject, Resource

log = logging.getLogger(__name__)

EVENTS = Resource("", "v1", "events", "Event", True)

MAX_MESSAGE_CHARACTERS = 1024
_REMEMBERED = 4096


class EventCounts(NamedTuple):
    """What became of the events recorded so far; repetitions counted one by one."""

    sent: int
    suppressed: int
    dropped: int
    failed: int


class _Subject(NamedTuple):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Fact(NamedTuple):
    """What makes two events the same."""

    subject: _Subject
    type: str
    reason: str
    message: str


class _Pending:
    """Occurrences of a fact that are not sent yet."""

    def __init__(self, at: datetime, resource_version: str) -> None:
        self.first = self.last = at
        self.count = 1
        self.resource_version = resource_version


class _Sent:
    """The Event that stands for a fact on the server."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count


class EventRecorder:
    """Takes events at once and sends them in the background while `run` is running.

    Limits: 25 events at once and then one in five minutes about one object, 10 a second about all,
    `capacity` different ones waiting.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        instance: str = "",
        capacity: int = 1000,
        per_object_burst: float = 25.0,
        per_object_rate: float = 1.0 / 300.0,
        limiter: TokenBucket | None = None,
        wall_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = Client(
            client.transport, retry=RetryPolicy(attempts=3, deadline_seconds=15.0)
        )
        self._component = component
        self._instance = instance or component
        self._capacity = capacity
        self._per_object_burst = per_object_burst
        self._per_object_rate = per_object_rate
        self._limiter = limiter or TokenBucket(10.0, 100.0)
        self._wall_now = wall_now
        self._created = 0
        self._pending: OrderedDict[_Fact, _Pending] = OrderedDict()
        self._sent: OrderedDict[_Fact, _Sent] = OrderedDict()
        self._buckets: OrderedDict[_Subject, TokenBucket] = OrderedDict()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._sent_count = self._suppressed = self._dropped = self._failed = 0

    def _serial(self, first: datetime) -> str:
        """16 hexadecimal digits that grow with time: the timestamps of events are whole seconds, and
        their names, by which servers list them, tell what came first within one.
        """
        self._created += 1
        return f"{int(first.timestamp() * 1e6):013x}{self._created % 0x1000:03x}"

    def record(self, obj: JsonObject, event_type: str, reason: str, message: str) -> None:
        """Queues an event (`Normal` or `Warning`) about `obj` (needs apiVersion, kind, metadata)."""
        metadata = obj["metadata"]
        subject = _Subject(
            obj["apiVersion"],
            obj["kind"],
            metadata.get("namespace") or "",
            metadata["name"],
            metadata.get("uid") or "",
        )
        fact = _Fact(subject, event_type, reason, message[:MAX_MESSAGE_CHARACTERS])
        now = self._wall_now()
        waiting = self._pending.get(fact)
        if waiting is not None:
            waiting.count += 1
            waiting.last = now
        elif len(self._pending) >= self._capacity:
            self._dropped += 1
        else:
            self._pending[fact] = _Pending(now, metadata.get("resourceVersion") or "")
            self._idle.clear()
            self._arrived.set()

    def counts(self) -> EventCounts:
        """What became of the events so far."""
        return EventCounts(self._sent_count, self._suppressed, self._dropped, self._failed)

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            while not self._pending:
                self._idle.set()
                self._arrived.clear()
                await self._arrived.wait()
            await self._limiter.acquire()
            fact, pending = self._pending.popitem(last=False)
            await self._send(fact, pending)

    async def flush(self, timeout_seconds: float) -> bool:
        """Waits until everything recorded so far is sent; False when the time was not enough."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _send(self, fact: _Fact, pending: _Pending) -> None:
        known = self._sent.get(fact)
        if not self._bucket(fact.subject).try_take():
            self._suppressed += pending.count
            if known is not None:
                known.count += pending.count  # told with the next one that gets through
            return
        try:
            if known is None or not await self._count_up(fact, pending, known):
                await self._create(fact, pending)
        except KubeError as error:
            self._failed += pending.count
            log.info("an event about %s was not stored: %s", fact.subject.name, error)
        else:
            self._sent_count += pending.count

    async def _count_up(self, fact: _Fact, pending: _Pending, known: _Sent) -> bool:
        """Raises the count of an Event; False when the server has let it expire."""
        count = known.count + pending.count
        patch = {"count": count, "lastTimestamp": _stamp(pending.last)}
        try:
            await self._client.patch(EVENTS, _home(fact.subject), known.name, patch)
        except NotFound:
            del self._sent[fact]
            return False
        known.count = count
        self._sent.move_to_end(fact)
        return True

    async def _create(self, fact: _Fact, pending: _Pending) -> None:
        subject = fact.subject
        involved = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": subject.uid,
            "resourceVersion": pending.resource_version,
        }
        name = f"{subject.name[:230]}.{self._serial(pending.first)}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _home(subject)},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "type": fact.type,
            "reason": fact.reason,
            "message": fact.message,
            "count": pending.count,
            "firstTimestamp": _stamp(pending.first),
            "lastTimestamp": _stamp(pending.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        await self._client.create(EVENTS, event)
        self._sent[fact] = _Sent(name, pending.count)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _bucket(self, subject: _Subject) -> TokenBucket:
        bucket = self._buckets.get(subject)
        if bucket is None:
            bucket = TokenBucket(self._per_object_rate, self._per_object_burst)
            self._buckets[subject] = bucket
            while len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(subject)
        return bucket


def _home(subject: _Subject) -> str:
    # Events about cluster-scoped objects live in "default", as those of Kubernetes itself do.
    return subject.namespace or "default"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
