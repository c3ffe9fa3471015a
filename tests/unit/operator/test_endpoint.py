"""The endpoint that jobs report to: who is heard, what is answered, what is refused."""

import json
from typing import Any

import msgspec
import pytest
from support.operator_builders import ending, job, running

from clusterops.api.heartbeat import PATH, Durable, Heartbeat
from clusterops.api.reasons import Cause
from clusterops.core.observed import TrainingJob
from clusterops.kube.store import Store
from clusterops.operator import tokens
from clusterops.operator.endpoint import BODY_LIMIT_BYTES, Endpoint
from clusterops.operator.heartbeats import HeartbeatTable, News
from clusterops.operator.metrics import Metrics

KEY = b"k" * 32


class Clock:
    """Stands still unless moved."""

    def __init__(self) -> None:
        from support.operator_builders import NOW

        self._now = NOW

    def now(self) -> Any:
        return self._now

    def monotonic(self) -> float:
        return 100.0


class Served:
    """An endpoint that knows some jobs."""

    def __init__(self, *jobs: TrainingJob, leading: bool = True) -> None:
        self.store: Store[TrainingJob] = Store({"uid": lambda found: [found.metadata.uid]})
        for found in jobs:
            self.store.put(found.key, found)
        self.table = HeartbeatTable()
        self.news: list[News] = []
        self.leading = leading
        self.endpoint = Endpoint(
            KEY,
            self.store,
            self.table,
            Clock(),
            Metrics(self.store.values),
            lambda _, news: self.news.append(news),
            lambda: self.leading,
            self._scrape,
        )

    async def _scrape(self, token: str) -> int:
        return {"prometheus": 200, "other": 403, "no answer": 503}.get(token, 401)

    async def request(
        self,
        method: str = "POST",
        path: str = PATH,
        body: bytes = b"",
        token: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        pieces: int = 1,
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        token = tokens.issue(KEY, "uid-a", 1) if token is None else token
        sent: list[Any] = []
        size = max(1, -(-len(body) // pieces))
        chunks = [body[i : i + size] for i in range(0, len(body), size)] or [b""]

        async def receive() -> dict[str, Any]:
            chunk = chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

        async def send(message: Any) -> None:
            sent.append(message)

        authorization = (b"authorization", f"Bearer {token}".encode())
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [authorization, *headers],
        }
        await self.endpoint(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

    async def beat(self, heartbeat: Heartbeat, **request: Any) -> tuple[int, Any]:
        body = json.dumps(heartbeat.to_wire()).encode()
        status, _, answer = await self.request(body=body, **request)
        return status, json.loads(answer)


async def test_a_heartbeat_is_taken_and_answered_with_the_next_interval() -> None:
    served = Served(job(running()))
    status, answer = await served.beat(Heartbeat(1, 0, 7, durable=Durable(5, "")))
    assert status == 200
    assert answer["save"] is None
    assert answer["intervalSeconds"] > 0
    assert served.table.reports("uid-a", 1, 101.0)[0].step == 7
    assert served.news == [News(first=True, durable=True, finished=False, step=True)]


async def test_a_job_under_notice_is_asked_to_save_and_leave() -> None:
    served = Served(job(ending(Cause.PREEMPTED, 60)))
    _, answer = await served.beat(Heartbeat(1, 0, 7))
    assert answer["save"]["thenExit"] is True
    assert answer["save"]["remainingSeconds"] == 60
    assert answer["save"]["reason"] == "Preempted"


async def test_a_body_in_pieces_and_unknown_fields_are_fine() -> None:
    body = json.dumps({**Heartbeat(1, 0, 7).to_wire(), "new": {"x": 1}}).encode()
    status, _, _ = await Served(job(running())).request(body=body, pieces=7)
    assert status == 200


@pytest.mark.parametrize(
    "token",
    [
        "",
        "uid-a",
        "uid-a.1.",
        "uid-a.1." + "0" * 64,
        "uid-b.1." + tokens.issue(KEY, "uid-a", 1).rpartition(".")[2],
        tokens.issue(b"other" * 8, "uid-a", 1),
        "uid-a.99999999999999999999.00",
        "ü.1.00",
    ],
)
async def test_a_forged_token_is_refused(token: str) -> None:
    status, _ = await Served(job(running())).beat(Heartbeat(1, 0, 7), token=token)
    assert status == 401


async def test_the_token_of_one_attempt_does_not_speak_for_another() -> None:
    served = Served(job(running(attempt=2)))
    status, _ = await served.beat(Heartbeat(2, 0, 7), token=tokens.issue(KEY, "uid-a", 1))
    assert status == 401


async def test_an_old_attempt_is_told_to_stop() -> None:
    served = Served(job(running(attempt=2)))
    status, answer = await served.beat(Heartbeat(1, 0, 7))
    assert status == 409
    assert "attempt 2" in answer["error"]
    assert len(served.table) == 0


async def test_a_closed_attempt_and_a_deleted_job_are_told_to_stop() -> None:
    closed = running()
    attempt = msgspec.structs.replace(closed.attempts[0], ended_at=closed.attempt_begun_at)
    of = job(msgspec.structs.replace(closed, attempts=(attempt,)))
    assert (await Served(of).beat(Heartbeat(1, 0, 7)))[0] == 409
    assert (await Served().beat(Heartbeat(1, 0, 7)))[0] == 409


async def test_an_operator_that_does_not_lead_sends_ranks_away_for_a_moment() -> None:
    served = Served(job(running()), leading=False)
    body = json.dumps(Heartbeat(1, 0, 7).to_wire()).encode()
    status, headers, _ = await served.request(body=body)
    assert status == 503
    assert int(headers[b"retry-after"]) > 0
    assert headers[b"connection"] == b"close"  # the next one may reach the leader
    assert (await served.request("GET", "/readyz"))[0] == 503
    assert (await served.request("GET", "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b'{"attempt": 1, "rank": 0}', 400),
        (b'{"attempt": 1, "rank": -1, "step": 1}', 400),
        (b'{"attempt": 1, "rank": 2, "step": 1}', 400),
        (b'{"attempt": "1", "rank": 0, "step": 1}', 400),
        (b" " * (BODY_LIMIT_BYTES + 1), 413),
    ],
)
async def test_what_is_no_heartbeat_is_refused_with_the_reason(body: bytes, status: int) -> None:
    got, _, answer = await Served(job(running())).request(body=body, pieces=3)
    assert got == status
    assert json.loads(answer)["error"]


async def test_other_methods_types_and_paths_are_refused() -> None:
    served = Served(job(running()))
    assert (await served.request("GET"))[0] == 405
    assert (await served.request("POST", "/metrics"))[0] == 405
    assert (await served.request("GET", "/etc/passwd"))[0] == 404
    text = ((b"content-type", b"text/plain"),)
    assert (await served.request(body=b"{}", headers=text))[0] == 415
    long = ((b"content-length", str(BODY_LIMIT_BYTES + 1).encode()),)
    assert (await served.request(body=b"{}", headers=long))[0] == 413


async def test_metrics_count_jobs_by_phase_and_heartbeats_by_answer() -> None:
    served = Served(job(running()))
    await served.beat(Heartbeat(1, 0, 7))
    _, _, text = await served.request("GET", "/metrics", token="prometheus")
    assert b'clusterops_jobs{phase="Running"} 1.0' in text
    assert b'clusterops_operator_heartbeats_total{status="200"} 1.0' in text
    assert b"uid-a" not in text


@pytest.mark.parametrize(("token", "status"), [("", 401), ("other", 403), ("no answer", 503)])
async def test_metrics_are_for_those_whom_the_api_server_allows(token: str, status: int) -> None:
    served = Served(job(running()))
    got, headers, body = await served.request("GET", "/metrics", token=token)
    assert got == status
    assert headers[b"www-authenticate"] == b"Bearer"
    assert b"clusterops_jobs" not in body
    for open_to_all in ("/healthz", "/readyz"):
        assert (await served.request("GET", open_to_all, token=""))[0] == 200


async def test_intervals_grow_with_the_number_of_jobs() -> None:
    served = Served(job(running()))
    few = (await served.beat(Heartbeat(1, 0, 7)))[1]["intervalSeconds"]
    for number in range(5000):
        served.table.record(f"uid-{number}", Heartbeat(1, 0, 1), 0.0)
    many = (await served.beat(Heartbeat(1, 0, 8)))[1]["intervalSeconds"]
    assert few < 1 < many <= 15
