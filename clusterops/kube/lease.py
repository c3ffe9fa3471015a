"""Leader election on a Lease: at most one acts, and none after it has lost the lease.

How that follows. A renewal is dated from the instant *before* it was sent, on this process's own
clock; nobody compares wall clocks. Until `renew_deadline` after that instant the holder may write.
A contender counts `lease_seconds` from the instant *after* it saw the lease change for the last
time, which is later than the renewal was sent, and only then takes it. So between the holder's last
write and another's first lie at least `lease_seconds - renew_deadline`, and in that gap the work is
cancelled. The clock goes on while the machine sleeps: a laptop that wakes up leads no more.

What no client can prevent: a write that left in time and that the network delivers much later.
Writes therefore also carry resourceVersions.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any

from clusterops.kube.client import Client
from clusterops.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from clusterops.kube.retry import RetryPolicy
from clusterops.kube.transport import JsonObject, Resource, Response, Transport

log = logging.getLogger(__name__)

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)

_READS = frozenset({"GET", "HEAD"})


class LostLeadership(KubeError):
    """The lease is not ours, or not certainly ours any more: nothing may be written."""


def boot_clock() -> float:
    """Seconds since boot, the time asleep included where the system tells it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class LeaderElection:
    """Competes for one Lease and runs the work while holding it.

    Writes of the work go through `fenced(transport)`, which refuses them once the lease may be
    another's.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float = 15.0,
        renew_deadline_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        on_started: Callable[[], None] | None = None,
        on_stopped: Callable[[], None] | None = None,
        now: Callable[[], float] = boot_clock,
        wall_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        rng: random.Random | None = None,
    ) -> None:
        """`identity` must differ between any two live processes.

        A process that finds its own identity in the lease goes on at once: so a stable identity
        makes restarts instant where something else (a locked folder) already keeps it single.
        """
        if not 0 < retry_seconds < renew_deadline_seconds < lease_seconds:
            raise ValueError(
                "a lease needs retry < renew deadline < lease duration, not "
                f"{retry_seconds:g}, {renew_deadline_seconds:g}, {lease_seconds:g} seconds"
            )
        # Own limiter and no retries: a renewal must neither queue behind the work nor outlive it.
        self._client = Client(
            client.transport,
            retry=RetryPolicy(attempts=1),
            timeout_seconds=max(retry_seconds, renew_deadline_seconds / 2),
        )
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._lease_seconds = lease_seconds
        self._renew_deadline_seconds = renew_deadline_seconds
        self._retry_seconds = retry_seconds
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._now = now
        self._wall_now = wall_now
        self._rng = rng or random.Random()
        self._renewed_at: float | None = (
            None  # when the last good renewal was sent; None = not ours
        )
        self._stored: JsonObject | None = None  # the lease as last read or written
        self._observed_spec: JsonObject = {}
        self._observed_at = 0.0

    # Asking

    @property
    def is_leader(self) -> bool:
        """Whether writing is allowed at this instant."""
        return self.write_seconds_left() > 0

    def write_seconds_left(self) -> float:
        """For how long writing is still allowed if no renewal succeeds; 0 when it is not."""
        if self._renewed_at is None:
            return 0.0
        return max(0.0, self._renewed_at + self._renew_deadline_seconds - self._now())

    @property
    def holder(self) -> str:
        """The identity last seen in the lease; "" when nobody has it."""
        return str(self._observed_spec.get("holderIdentity") or "")

    def fenced(self, transport: Transport) -> "FencedTransport":
        """The transport, letting writes through only while this election is won."""
        return FencedTransport(transport, self)

    # Competing

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease, runs `work` under it, competes again after a loss; until cancelled.

        Returns, or raises, when `work` does. In these cases and when cancelled the work ends first,
        still renewing, and then the lease is released. Raises LostLeadership when the work does not
        end within the renew deadline after a loss: the process must end then.
        """
        while True:
            await self._acquire()
            log.info("%s leads %s/%s", self.identity, self._namespace, self._name)
            if await self._lead(work):
                return
            log.warning("%s lost %s/%s", self.identity, self._namespace, self._name)

    async def _acquire(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._renew_deadline_seconds):
                    if await self._try_to_hold():
                        return
            except (KubeError, TimeoutError) as error:
                log.info("%s/%s: %s", self._namespace, self._name, error or "no answer in time")
            await asyncio.sleep(self._retry_seconds * (1.0 + 0.2 * self._rng.random()))

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Runs the work; True when it ended by itself, False when the lease was lost."""
        worker = asyncio.ensure_future(work())
        keeper = asyncio.create_task(self._keep(), name=f"renew-{self._name}")
        if self._on_started is not None:
            self._on_started()
        try:
            await asyncio.wait([worker, keeper], return_when=asyncio.FIRST_COMPLETED)
            if not worker.done():
                await self._stop_work(worker)
                return False
            await worker
            return True
        finally:
            if not worker.done():  # cancelled from outside: renewals go on while the work ends
                worker.cancel()
                await asyncio.wait([worker], timeout=self._renew_deadline_seconds)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            if worker.done():
                await self._release()
            self._renewed_at = None
            if self._on_stopped is not None:
                self._on_stopped()

    async def _stop_work(self, worker: "asyncio.Future[None]") -> None:
        worker.cancel()
        await asyncio.wait([worker], timeout=self._renew_deadline_seconds)
        if not worker.done():
            raise LostLeadership(
                f"the lease {self._namespace}/{self._name} was lost and the work under it did not "
                f"end within {self._renew_deadline_seconds:g} s; this process must be restarted"
            )
        if not worker.cancelled() and worker.exception() is not None:
            log.warning("the work ended with an error after the loss: %r", worker.exception())

    async def _keep(self) -> None:
        """Renews until that has not been possible for the renew deadline, or another has it."""
        while True:
            left = self.write_seconds_left()
            if left <= 0:
                break
            await asyncio.sleep(min(self._retry_seconds, left))
            left = self.write_seconds_left()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    if not await self._try_to_hold():
                        break
            except (KubeError, TimeoutError) as error:
                log.warning(
                    "%s/%s could not be renewed: %s",
                    self._namespace,
                    self._name,
                    error or "no answer in time",
                )
        self._renewed_at = None

    async def _try_to_hold(self) -> bool:
        """Takes or renews the lease; False when another has it. Raises KubeError: unknown."""
        sent_at = self._now()
        # While leading, the stored lease is ours unless the server says that it has changed.
        lease = self._stored if self._renewed_at is not None else None
        if lease is None:
            lease = await self._client.find(LEASES, self._namespace, self._name)
            sent_at = self._now()
        if lease is not None:
            self._observe(lease)
            if not self._may_take(lease["spec"]):
                return False
        try:
            written = await self._write(lease)
        except AlreadyExists:
            return False
        except NotFound:
            self._stored = None  # somebody deleted the lease: the next try makes it anew
            raise
        except Conflict:
            if self._renewed_at is None:
                return False  # another was faster
            self._stored = None
            return await self._look_again()
        self._renewed_at = sent_at
        self._stored = written
        self._observe(written)
        return True

    async def _look_again(self) -> bool:
        """After a conflict while leading: an earlier renewal of ours arrived, or it is another's."""
        lease = await self._client.find(LEASES, self._namespace, self._name)
        if lease is None:
            return False
        self._observe(lease)
        if lease["spec"].get("holderIdentity") != self.identity:
            return False
        self._stored = lease
        return True  # not dated anew: the next renewal, a retry period later, does that

    async def _write(self, lease: JsonObject | None) -> JsonObject:
        now = self._wall_now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: Mapping[str, Any] = lease["spec"] if lease else {}
        mine = before.get("holderIdentity") == self.identity
        spec = {
            **before,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._lease_seconds),
            "acquireTime": before.get("acquireTime") if mine else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0)
            + (0 if mine or not lease else 1),
        }
        if lease is not None:
            return await self._client.replace(LEASES, {**lease, "spec": spec})
        created = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": spec,
        }
        return await self._client.create(LEASES, created)

    def _observe(self, lease: JsonObject) -> None:
        spec = lease.setdefault("spec", {})
        if spec != self._observed_spec:
            self._observed_spec = spec
            self._observed_at = self._now()

    def _may_take(self, spec: Mapping[str, Any]) -> bool:
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self.identity):
            return True
        duration = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
        return self._now() >= self._observed_at + duration

    async def _release(self) -> None:
        """Gives the lease back so that the next one need not wait; best effort."""
        if self._stored is None or not self.is_leader:
            return
        spec = {**self._stored["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        self._renewed_at = None  # no write after this one
        try:
            async with asyncio.timeout(self._retry_seconds):
                await self._client.replace(LEASES, {**self._stored, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.info("%s/%s could not be released: %s", self._namespace, self._name, error)


class FencedTransport:
    """A transport that refuses writes unless the election is won at that instant.

    A write still waiting for its answer when the lease runs out is cut off.
    """

    def __init__(self, transport: Transport, election: LeaderElection) -> None:
        self._transport = transport
        self._election = election

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout_seconds: float = 30.0,
    ) -> Response:
        """As of the transport behind; raises LostLeadership for a write without the lease."""
        if method not in _READS:
            left = self._election.write_seconds_left()
            if left <= 0:
                raise LostLeadership(
                    f"{method} {path} refused: {self._election.identity} leads no more"
                )
            timeout_seconds = min(timeout_seconds, left)
        return await self._transport.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout_seconds=timeout_seconds,
        )

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        silence_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """As of the transport behind: reading needs no lease."""
        return self._transport.stream(
            path, query=query, accept=accept, silence_seconds=silence_seconds
        )

    async def close(self) -> None:
        """Closes the transport behind."""
        await self._transport.close()
