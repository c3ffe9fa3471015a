"""The HTTPS endpoint that jobs report to: one small ASGI application without a framework.

| answer | when |
|---|---|
| 200 | the heartbeat was taken; says when to report next and whether to save |
| 400, 413, 415 | the body is no heartbeat, too long, or not JSON |
| 401 | no token, or one that does not belong to this attempt |
| 409 | a newer attempt exists, or this one is over: stop without committing |
| 503 + Retry-After | this operator is not the leader, or does not know the jobs yet |

`/healthz` and `/readyz` are served beside it to everybody, `/metrics` to whom the API server allows
it (`scraping`): 401 and 403 for others, 503 while that cannot be asked.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import msgspec

from clusterops.api.heartbeat import PATH, Answer, Heartbeat, MalformedHeartbeat
from clusterops.core.notice import save_request
from clusterops.core.observed import TrainingJob
from clusterops.kube.store import Store
from clusterops.operator import scraping, tokens
from clusterops.operator.clock import SteadyClock
from clusterops.operator.heartbeats import HeartbeatTable, News
from clusterops.operator.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_LIMIT_BYTES = 16_384
RETRY_AFTER_SECONDS = 2
# Reports a second that the endpoint is willing to take in all; intervals grow with the ranks.
REPORTS_PER_SECOND = 1_000.0
SHORTEST_INTERVAL_SECONDS = 0.5
LONGEST_INTERVAL_SECONDS = 15.0
# Notices reach a job through its first rank; the others need to be heard far less often.
OTHER_RANKS_FACTOR = 4.0

_NO_SCRAPE = {
    scraping.UNKNOWN: "metrics are for users of the API server: send a bearer token",
    scraping.DENIED: "this user may not get the path /metrics",
    scraping.UNDECIDED: "the API server does not review tokens for this operator: may it create "
    "tokenreviews and subjectaccessreviews (the ClusterRole system:auth-delegator)?",
}


class Reply(NamedTuple):
    """One HTTP answer."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Endpoint:
    """The application. `leading` says whether heartbeats may be taken now."""

    def __init__(
        self,
        key: bytes,
        jobs: Store[TrainingJob],
        heartbeats: HeartbeatTable,
        clock: SteadyClock,
        metrics: Metrics,
        reported: Callable[[TrainingJob, News], None],
        leading: Callable[[], bool],
        scraper: Callable[[str], Awaitable[int]],
    ) -> None:
        """`scraper` gives the HTTP status that a bearer token gets from /metrics."""
        self._key = key
        self._jobs = jobs
        self._heartbeats = heartbeats
        self._clock = clock
        self._metrics = metrics
        self._reported = reported
        self._leading = leading
        self._scraper = scraper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            return
        if scope["path"] == PATH:
            reply = await self._heartbeat_request(scope, receive)
            self._metrics.heartbeats.labels(status=str(reply.status)).inc()
        else:
            reply = await self._page(scope)
        headers = [(b"content-length", str(len(reply.body)).encode()), *reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _heartbeat_request(self, scope: Scope, receive: Receive) -> Reply:
        if scope["method"] != "POST":
            return _problem(405, "heartbeats are posted", (b"allow", b"POST"))
        headers = dict(scope["headers"])
        bearer = tokens.verify(self._key, _bearer_token(headers.get(b"authorization", b"")))
        if bearer is None:
            return _problem(401, "no valid token", (b"www-authenticate", b"Bearer"))
        if b"json" not in headers.get(b"content-type", b"application/json"):
            return _problem(415, "a heartbeat is application/json")
        if int_or(headers.get(b"content-length", b"0"), 0) > BODY_LIMIT_BYTES:
            return _problem(413, f"a heartbeat has at most {BODY_LIMIT_BYTES} bytes")
        body = await _read(receive)
        if body is None:
            return _problem(413, f"a heartbeat has at most {BODY_LIMIT_BYTES} bytes")
        try:
            decoded = msgspec.json.decode(body)
            if not isinstance(decoded, dict):
                return _problem(400, "a heartbeat is a JSON object")
            heartbeat = Heartbeat.from_wire(decoded)
        except (msgspec.DecodeError, UnicodeDecodeError, MalformedHeartbeat) as error:
            return _problem(400, str(error))
        return self.answer(bearer, heartbeat)

    def answer(self, bearer: tokens.Bearer, heartbeat: Heartbeat) -> Reply:
        """Takes one heartbeat of an authenticated rank."""
        if heartbeat.attempt != bearer.attempt:
            return _problem(401, "the token belongs to another attempt")
        if not self._leading():
            retry = (b"retry-after", str(RETRY_AFTER_SECONDS).encode())
            # Behind a Service the next connection may reach the leader; this one never will.
            leave = (b"connection", b"close")
            return _problem(503, "this operator is not the leader", retry, leave)
        found = self._jobs.by_index("uid", bearer.job_uid)
        if not found:
            return _problem(409, "this job does not exist any more")
        job = found[0]
        if heartbeat.attempt < job.status.attempt:
            return _problem(409, f"attempt {job.status.attempt} has begun")
        current = job.status.attempt == heartbeat.attempt
        if current and job.status.open_attempt is None:
            return _problem(409, f"attempt {heartbeat.attempt} is over")
        if heartbeat.rank >= job.spec.replicas * job.spec.processes_per_pod:
            return _problem(400, f"there is no rank {heartbeat.rank}")
        news = self._heartbeats.record(bearer.job_uid, heartbeat, self._clock.monotonic())
        self._reported(job, news)
        # A newer attempt than the store knows is one that was begun a moment ago.
        save = save_request(job, self._clock.now()) if current else None
        answer = Answer(self._interval(heartbeat.rank), save)
        return _json(200, answer.to_wire())

    def _interval(self, rank: int) -> float:
        """The more ranks there are the rarer each reports; the first ones stay quick."""
        jobs = max(1, len(self._heartbeats))
        first = max(SHORTEST_INTERVAL_SECONDS, 2.0 * jobs / REPORTS_PER_SECOND)
        first = min(first, LONGEST_INTERVAL_SECONDS)
        return first if rank == 0 else min(first * OTHER_RANKS_FACTOR, LONGEST_INTERVAL_SECONDS)

    async def _page(self, scope: Scope) -> Reply:
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            return _problem(405, "read only", (b"allow", b"GET"))
        if path == scraping.PATH:
            token = _bearer_token(dict(scope["headers"]).get(b"authorization", b""))
            status = await self._scraper(token)
            if status != scraping.ALLOWED:
                return _problem(status, _NO_SCRAPE[status], (b"www-authenticate", b"Bearer"))
            kind = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
            return Reply(200, self._metrics.render(), (kind,))
        if path == "/healthz":
            return Reply(200, b"ok\n")
        if path == "/readyz":
            return Reply(200, b"leading\n") if self._leading() else Reply(503, b"not leading\n")
        return _problem(404, f"POST {PATH} is what this server is for")


def int_or(text: bytes, default: int) -> int:
    """A header's number; `default` for what is none."""
    return int(text) if text.isdigit() and len(text) < 20 else default


async def _read(receive: Receive) -> bytes | None:
    """The body; None when it is too long."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body  # the client has left; what came is no whole heartbeat and is refused
        piece: bytes = message.get("body", b"")
        body += piece
        if len(body) > BODY_LIMIT_BYTES:
            return None
        if not message.get("more_body"):
            return body


def _bearer_token(header: bytes) -> str:
    kind, _, token = header.partition(b" ")
    return token.strip().decode("latin-1") if kind.lower() == b"bearer" else ""


def _json(status: int, content: Any, *headers: tuple[bytes, bytes]) -> Reply:
    kind = (b"content-type", b"application/json")
    return Reply(status, msgspec.json.encode(content), (kind, *headers))


def _problem(status: int, message: str, *headers: tuple[bytes, bytes]) -> Reply:
    return _json(status, {"error": message}, *headers)
