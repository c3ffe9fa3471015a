"""Metrics and liveness on loopback, read-only, and unimpressed by bad requests."""

import asyncio
import contextlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from health.exposition import Exposition, Family, Sample, family, rendered


def test_the_text_is_what_prometheus_reads():
    labels = (("text", 'a"b\\c\nd\x1b'),)
    text = rendered(
        [
            family("x_total", "counter", "About x.", 1234567890123),
            Family("y", "gauge", "About y.", (Sample(labels, 0.5),)),
        ]
    )
    first, second = text_string_to_metric_families(text)
    assert first.samples[0].value == 1234567890123
    assert second.samples[0].labels == {"text": 'a"b\\c\nd?'}


@contextlib.asynccontextmanager
async def serving(unwell=""):
    exposition = Exposition(0, lambda: [family("x", "gauge", "X.", 1)], lambda: unwell)
    task = asyncio.create_task(exposition.run())
    try:
        async with asyncio.timeout(20):
            await exposition.ready.wait()
        yield exposition.port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        answer = await reader.read()
        writer.close()
        return answer


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /healthz HTTP/1.1", b"200"),
        (b"GET /metrics?x=1 HTTP/1.1", b"200"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"DELETE /healthz HTTP/1.1", b"405"),
        (b"GET / HTTP/1.1", b"404"),
        (b"GET /metrics/../etc HTTP/1.1", b"404"),
        (b"\x00\xff", b"404"),
    ],
)
async def test_there_are_two_paths_to_read_and_nothing_to_do(request_line, status):
    async with serving() as port:
        answer = await ask(port, request_line + b"\r\nHost: x\r\n\r\n")
    assert answer.split(b" ")[1] == status


async def test_a_daemon_that_does_not_judge_any_more_says_so():
    async with serving("nothing was judged for 200 s") as port:
        answer = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert b"503" in answer
    assert b"200 s" in answer


async def test_a_head_without_end_is_cut_off_and_others_are_served():
    async with serving() as port:
        assert await ask(port, b"GET /" + b"x" * 100_000) == b""
        assert b"200" in await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
