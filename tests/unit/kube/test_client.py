"""The client: paths and bodies of each verb, what is retried and what is not, status writes."""

import asyncio
import json
import random

import pytest
from support.kube_cluster import GADGETS, WIDGETS, FakeCluster, FakeTransport, status_answer
from support.kube_virtual_time import run

from clusterops.kube.client import APPLY_PATCH, JSON_PATCH, Client
from clusterops.kube.errors import (
    AlreadyExists,
    Conflict,
    Gone,
    NotFound,
    ServerBusy,
    Unreachable,
)
from clusterops.kube.rate_limit import TokenBucket
from clusterops.kube.retry import RetryPolicy
from clusterops.kube.transport import Response, resource_path

BUSY = status_answer(429, "TooManyRequests", retry_after="2")
BROKEN = status_answer(500, "InternalError")
NOT_BEGUN = status_answer(503, "ServiceUnavailable", retry_after="1")


def world(**options):
    cluster = FakeCluster()
    transport = FakeTransport(cluster)
    return cluster, transport, Client(transport, rng=random.Random(1), **options)


def widget(name, **fields):
    return {"kind": "Widget", "metadata": {"namespace": "ns", "name": name}, **fields}


class Recorder:
    """A transport that only remembers what it was asked."""

    def __init__(self):
        self.calls = []

    async def request(self, method, path, *, query=None, body=None, content_type="", **_):
        self.calls.append(
            (method, path, dict(query or {}), body and json.loads(body), content_type)
        )
        return Response(200, {}, b"{}")


def test_each_verb_has_its_path_query_and_body():
    async def scenario():
        recorder = Recorder()
        client = Client(recorder)
        await client.get(GADGETS, None, "g")
        await client.create(WIDGETS, widget("w"), field_manager="me", dry_run=True)
        await client.create_subresource(WIDGETS, "ns", "w", "binding", {"target": {"name": "n"}})
        await client.replace_status(WIDGETS, widget("w", status={"a": 1}))
        await client.patch(WIDGETS, "ns", "w", {"spec": None}, subresource="status")
        await client.patch(WIDGETS, "ns", "w", [{"op": "remove"}], content_type=JSON_PATCH)
        managed = widget("w", spec=1)
        managed["metadata"]["managedFields"] = [{}]
        await client.apply(WIDGETS, managed, field_manager="me", force=True)
        await client.delete(
            WIDGETS, "ns", "w", uid="u", grace_period_seconds=0, propagation="Foreground"
        )
        base = "/apis/example.org/v1/namespaces/ns/widgets"
        plain, merge = "application/json", "application/merge-patch+json"
        assert recorder.calls == [
            ("GET", "/apis/example.org/v1/gadgets/g", {}, None, plain),
            ("POST", base, {"fieldManager": "me", "dryRun": "All"}, widget("w"), plain),
            ("POST", f"{base}/w/binding", {}, {"target": {"name": "n"}}, plain),
            ("PUT", f"{base}/w/status", {}, widget("w", status={"a": 1}), plain),
            ("PATCH", f"{base}/w/status", {}, {"spec": None}, merge),
            ("PATCH", f"{base}/w", {}, [{"op": "remove"}], JSON_PATCH),
            (
                "PATCH",
                f"{base}/w",
                {"fieldManager": "me", "force": "true"},
                widget("w", spec=1),
                APPLY_PATCH,
            ),
            (
                "DELETE",
                f"{base}/w",
                {},
                {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                    "gracePeriodSeconds": 0,
                    "propagationPolicy": "Foreground",
                },
                plain,
            ),
        ]
        assert "managedFields" in managed["metadata"]  # the caller's object is left alone

    run(scenario())


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(ValueError, match="no name of an object"):
        resource_path(WIDGETS, "ns", name)


def test_a_name_cannot_leave_its_place_in_the_path():
    assert resource_path(WIDGETS, "ns", "../../x?y#z").endswith("/widgets/..%2F..%2Fx%3Fy%23z")
    assert resource_path(GADGETS, "ignored", "system:node").endswith("/gadgets/system:node")


def test_errors_say_what_happened_by_their_type():
    async def scenario():
        _, _, client = world()
        await client.create(WIDGETS, widget("a"))
        with pytest.raises(AlreadyExists):
            await client.create(WIDGETS, widget("a"))
        with pytest.raises(NotFound):
            await client.get(WIDGETS, "ns", "b")
        assert await client.find(WIDGETS, "ns", "b") is None
        old = await client.get(WIDGETS, "ns", "a")
        await client.replace(WIDGETS, {**old, "spec": 1})
        with pytest.raises(Conflict):
            await client.replace(WIDGETS, {**old, "spec": 2})

    run(scenario())


def test_list_reads_all_pages():
    async def scenario():
        cluster, _, client = world()
        for number in range(7):
            cluster.put("widgets", f"ns{number % 2}", f"w{number}")
        everything, version = await client.list(WIDGETS, limit=2)
        assert len(everything) == 7
        assert version == str(cluster.version)
        assert len((await client.list(WIDGETS, "ns1"))[0]) == 3

    run(scenario())


def test_list_begins_again_when_a_page_token_grew_too_old():
    async def scenario():
        cluster, transport, client = world()
        for number in range(5):
            cluster.put("widgets", "ns", f"w{number}")
        transport.after = lambda *_: cluster.snapshots.clear()
        items, _ = await client.list(WIDGETS, limit=2)
        assert [item["metadata"]["name"] for item in items] == [f"w{n}" for n in range(5)]
        transport.script.append(status_answer(410, "Expired"))
        with pytest.raises(Gone):
            await client.list(WIDGETS)

    run(scenario())


REPEATABLE = {
    "get": lambda client: client.get(WIDGETS, "ns", "a"),
    "list": lambda client: client.list(WIDGETS),
    "replace": lambda client: client.replace(WIDGETS, widget("a", spec=1)),
    "patch": lambda client: client.patch(WIDGETS, "ns", "a", {"spec": 1}),
    "apply": lambda client: client.apply(WIDGETS, widget("a"), field_manager="me"),
    "delete": lambda client: client.delete(WIDGETS, "ns", "a"),
}
ONCE = {
    "create": lambda client: client.create(WIDGETS, widget("b")),
    "subresource": lambda client: client.create_subresource(GADGETS, None, "g", "x", widget("c")),
    "json patch": lambda client: client.patch(WIDGETS, "ns", "a", {}, content_type=JSON_PATCH),
}


@pytest.mark.parametrize("failure", [BUSY, BROKEN, NOT_BEGUN, Unreachable("reset")])
@pytest.mark.parametrize("verb", REPEATABLE)
def test_what_can_be_done_twice_is_tried_again_after_any_passing_failure(verb, failure):
    async def scenario():
        cluster, transport, client = world()
        cluster.put("widgets", "ns", "a")
        transport.script.extend([failure, failure])
        await REPEATABLE[verb](client)
        assert len(transport.requests) == 3

    run(scenario())


@pytest.mark.parametrize("verb", ONCE)
@pytest.mark.parametrize(
    ("failure", "error"), [(BROKEN, ServerBusy), (Unreachable("reset"), Unreachable)]
)
def test_what_may_have_been_done_is_not_tried_again(verb, failure, error):
    async def scenario():
        cluster, transport, client = world()
        cluster.put("widgets", "ns", "a")
        transport.script.append(failure)
        with pytest.raises(error):
            await ONCE[verb](client)
        assert len(transport.requests) == 1

    run(scenario())


@pytest.mark.parametrize("verb", ONCE)
@pytest.mark.parametrize("failure", [BUSY, NOT_BEGUN])
def test_even_a_create_is_tried_again_when_the_server_says_it_was_not_begun(verb, failure):
    async def scenario():
        cluster, transport, client = world()
        cluster.put("widgets", "ns", "a")
        transport.script.append(failure)
        await ONCE[verb](client)
        assert len(transport.requests) == 2

    run(scenario())


def test_retry_after_is_honoured_and_a_wish_beyond_the_deadline_is_passed_on():
    async def scenario():
        loop = asyncio.get_running_loop()
        cluster, transport, client = world(retry=RetryPolicy(deadline_seconds=60))
        cluster.put("widgets", "ns", "a")
        start = loop.time()
        transport.script.append(status_answer(429, "TooManyRequests", retry_after="17"))
        await client.get(WIDGETS, "ns", "a")
        assert loop.time() - start == pytest.approx(17)
        transport.script.append(status_answer(429, "TooManyRequests", retry_after="600"))
        with pytest.raises(ServerBusy) as raised:
            await client.get(WIDGETS, "ns", "a")
        assert raised.value.retry_after_seconds == 600

    run(scenario())


def test_a_server_that_is_down_is_reported_after_three_tries():
    async def scenario():
        _, transport, client = world()
        transport.script.extend([Unreachable("refused")] * 50)
        with pytest.raises(Unreachable, match="refused"):
            await client.get(WIDGETS, "ns", "a")
        assert len(transport.requests) == 3

    run(scenario())


def test_tries_end_at_the_limit_of_attempts_and_of_time():
    async def scenario():
        loop = asyncio.get_running_loop()
        _, transport, client = world()
        transport.script.extend([BROKEN] * 50)
        start = loop.time()
        with pytest.raises(ServerBusy):
            await client.get(WIDGETS, "ns", "a")
        assert len(transport.requests) == 8
        assert loop.time() - start <= 60

    run(scenario())


def test_requests_wait_for_the_limiter():
    async def scenario():
        loop = asyncio.get_running_loop()
        cluster, _, client = world(limiter=TokenBucket(rate=10, burst=1))
        cluster.put("widgets", "ns", "a")
        start = loop.time()
        await asyncio.gather(*(client.get(WIDGETS, "ns", "a") for _ in range(21)))
        assert loop.time() - start == pytest.approx(2.0)

    run(scenario())


def test_a_status_that_is_the_same_is_not_written():
    async def scenario():
        cluster, _, client = world()
        current = cluster.put("widgets", "ns", "a", status={"phase": "Running"})
        assert await client.write_status(WIDGETS, current, {"phase": "Running"}) is current
        assert cluster.writes == []
        written = await client.write_status(WIDGETS, current, {"phase": "Done"})
        assert written["status"] == {"phase": "Done"}
        with pytest.raises(Conflict):
            await client.write_status(WIDGETS, current, {"phase": "Late"})

    run(scenario())


def test_update_status_reads_anew_after_a_conflict_and_loses_nobodys_change():
    async def scenario():
        cluster, transport, client = world()
        cluster.put("widgets", "ns", "a", status={"count": 0})
        interfere = iter([True, True, False])

        def another_writer(method, path):
            if method == "PUT" and next(interfere):
                count = cluster.objects["widgets", "ns", "a"]["status"]["count"]
                cluster.put("widgets", "ns", "a", status={"count": count + 10})

        transport.before = another_writer
        stored = await client.update_status(
            WIDGETS, "ns", "a", lambda obj: {"count": obj["status"]["count"] + 1}
        )
        assert stored["status"] == {"count": 21}

    run(scenario())


def test_update_status_gives_up_after_its_attempts_and_can_leave_things_alone():
    async def scenario():
        cluster, transport, client = world()
        before = cluster.put("widgets", "ns", "a", status={})
        assert await client.update_status(WIDGETS, "ns", "a", lambda _: None) == before

        def mutate(obj):
            obj["status"]["spoiled"] = True  # a copy: what is compared stays as it was
            return {"new": 1}

        transport.before = lambda method, _: (
            status_answer(409, "Conflict") if method == "PUT" else None
        )
        with pytest.raises(Conflict):
            await client.update_status(WIDGETS, "ns", "a", mutate, attempts=3)
        assert [method for method, _, _ in transport.requests].count("PUT") == 3

    run(scenario())


def test_a_followed_log_comes_in_pieces():
    class Logs(Recorder):
        def stream(self, path, *, query=None, accept="", silence_seconds=None):  # noqa: ARG002
            self.calls.append((path, dict(query), silence_seconds))
            return self._open()

        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def _open(self):
            async def pieces():
                yield b"one\n"
                yield b"two\n"

            yield pieces()

    async def scenario():
        transport = Logs()
        client = Client(transport)
        got = [
            piece
            async for piece in client.pod_log("ns", "p", container="c", follow=True, tail_lines=5)
        ]
        assert got == [b"one\n", b"two\n"]
        path = "/api/v1/namespaces/ns/pods/p/log"
        query = {"container": "c", "follow": "true", "tailLines": "5"}
        assert transport.calls == [(path, query, None)]

    run(scenario())
