"""What a connection makes of a client's bytes, and what it sends back."""

import asyncio
from typing import Any

import pytest
from support.apiserver_wire import Client

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the method, the path, the query and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    text = b"%b %b?%b %b" % (
        scope["method"].encode(), scope["path"].encode(), scope["query_string"], body,
    )  # fmt: skip
    length = str(len(text)).encode()
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", length)]})  # fmt: skip
    await send({"type": "http.response.body", "body": text})


class Held:
    """Answers in pieces, each when it is told to."""

    def __init__(self, *pieces: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.pieces = pieces
        self.headers = headers
        self.turn = asyncio.Semaphore(0)

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        for piece in self.pieces:
            await self.turn.acquire()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def test_a_whole_answer_is_one_write_and_needs_no_task() -> None:
    client = Client(echo)
    client.send(GET)
    assert not client.shared.tasks
    assert client.transport.writes == 1
    assert client.answers == [(200, {"date": "today", "content-length": "8"}, b"GET /a? ")]


async def test_queries_and_escapes_of_the_path_are_taken_apart() -> None:
    client = Client(echo)
    client.send(b"GET /a%20b%2Fc?d=%20 HTTP/1.1\r\n\r\n")
    client.send(b"GET https://x/e?f HTTP/1.1\r\n\r\n")
    assert [answer.body for answer in client.answers] == [b"GET /a b/c?d=%20 ", b"GET /e?f "]


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    client = Client(echo)
    client.send(GET + b"POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz" + GET)
    await client.settled()
    assert [answer.body for answer in client.answers] == [b"GET /a? ", b"POST /b? xyz", b"GET /a? "]


async def test_what_is_sent_ahead_of_an_unfinished_answer_waits_unread() -> None:
    held = Held(b"one", b"two")
    client = Client(held)
    client.send(GET + GET)
    assert not client.transport.reading
    for _ in range(4):
        held.turn.release()
    await client.settled()
    assert [answer.body for answer in client.answers] == [b"onetwo", b"onetwo"]
    assert client.transport.reading
    assert not client.transport.closed


async def test_pieces_without_a_length_are_chunked() -> None:
    held = Held(b"one", b"two")
    client = Client(held)
    client.send(GET)
    assert client.transport.sent.endswith(b"transfer-encoding: chunked\r\n\r\n")  # the head at once
    held.turn.release()
    held.turn.release()
    await client.settled()
    assert client.answers[0].body == b"onetwo"
    assert not client.transport.closed


async def test_a_client_of_http_1_0_reads_pieces_until_the_end_of_the_connection() -> None:
    held = Held(b"one")
    client = Client(held)
    held.turn.release()
    client.send(b"GET /a HTTP/1.0\r\n\r\n")
    await client.settled()
    assert client.answers == [(200, {"date": "today", "connection": "close"}, b"one")]
    assert client.transport.closed


async def test_a_head_request_gets_no_body() -> None:
    client = Client(echo)
    client.send(b"HEAD /a HTTP/1.1\r\n\r\n" + GET)
    first, _, rest = bytes(client.transport.sent).partition(b"\r\n\r\n")
    assert b"content-length: 9" in first
    assert rest.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET /a HTTP/1.0\r\n\r\n", b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n",
     b"GET /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"],
)  # fmt: skip
async def test_connections_end_when_the_request_says_so(request_bytes: bytes) -> None:
    client = Client(echo)
    client.send(request_bytes)
    await client.settled()
    assert client.answers[0].headers["connection"] == "close"
    assert client.answers[0].body == b"GET /a? "
    assert client.transport.closed


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\r\n", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n",
                b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)  # fmt: skip
async def test_what_is_no_http_is_refused_and_the_connection_ends(garbage: bytes) -> None:
    client = Client(echo)
    client.send(garbage)
    await client.settled()
    assert client.transport.closed
    assert b"200 OK" not in client.transport.sent


async def test_a_head_without_end_is_refused() -> None:
    client = Client(echo)
    client.send(b"GET / HTTP/1.1\r\n")
    for number in range(100):
        client.send(f"x-{number}: {'y' * 1000}\r\n".encode())
    assert client.answers[0].status == 431
    assert client.transport.closed


async def test_a_large_body_is_no_large_head() -> None:
    client = Client(echo)
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n")
    for _ in range(2):
        client.send(b"x" * 100_000)
        await asyncio.sleep(0)
    await client.settled()
    assert len(client.answers[0].body) == len("POST /? ") + 200_000


async def test_a_body_that_nobody_asks_for_is_not_read_without_end() -> None:
    asked = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asked.wait()
        await echo(scope, receive, send)

    client = Client(slow)
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 70_000)
    assert not client.transport.reading
    asked.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.transport.reading
    client.send(b"x" * 30_000)
    await client.settled()
    assert client.answers[0].status == 200


async def test_an_answer_before_the_end_of_the_body_leaves_the_connection_usable() -> None:
    async def early(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401,
                    "headers": [(b"content-length", b"0")]})  # fmt: skip
        await send({"type": "http.response.body", "body": b""})

    client = Client(early)
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 70_000)
    client.send(b"x" * 130_000 + GET)
    assert [answer.status for answer in client.answers] == [401, 401]
    assert client.transport.reading


async def test_clients_that_wait_for_leave_to_send_get_it() -> None:
    client = Client(echo)
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    client.send(b"ab")
    await client.settled()
    assert [answer.status for answer in client.answers] == [100, 200]


async def test_an_application_learns_that_its_client_left() -> None:
    news = []

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        news.append((await receive())["type"])
        news.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    client = Client(waiting)
    client.send(GET)
    client.leave()
    await client.settled()
    assert news == ["http.request", "http.disconnect"]
    assert not client.transport.sent


async def test_a_slow_reader_holds_up_its_own_answer_only() -> None:
    held = Held(b"one")
    client = Client(held)
    client.send(GET)
    client.connection.pause_writing()
    held.turn.release()
    for _ in range(10):
        await asyncio.sleep(0)
    assert b"one" not in client.transport.sent
    client.connection.resume_writing()
    await client.settled()
    assert client.answers[0].body == b"one"


async def test_a_paused_writer_whose_client_leaves_ends() -> None:
    held = Held(b"one")
    client = Client(held)
    client.send(GET)
    client.connection.pause_writing()
    held.turn.release()
    await asyncio.sleep(0)
    client.leave()
    await client.settled()
    assert b"one" not in client.transport.sent


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
async def test_no_header_can_smuggle_in_another(value: bytes) -> None:
    client = Client(Held(headers=((b"warning", value),)))
    with pytest.raises(ValueError, match="line break"):
        client.send(GET)
    assert not client.transport.sent


@pytest.mark.parametrize("body", [b"short", b"much too long"])
async def test_an_answer_of_another_length_than_promised_is_an_error(body: bytes) -> None:
    async def lying(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-length", b"8")]})  # fmt: skip
        await send({"type": "http.response.body", "body": body})

    with pytest.raises(RuntimeError, match="another length"):
        Client(lying).send(GET)


async def test_an_application_that_fails_after_waiting_ends_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    client = Client(failing)
    client.send(GET)
    await client.settled()
    assert client.transport.aborted
    assert "ZeroDivisionError" in caplog.text


async def test_an_application_that_leaves_its_answer_open_ends_the_connection() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        return

    client = Client(silent)
    client.send(GET)
    assert client.transport.aborted


async def test_an_application_that_is_begun_outside_of_a_task_can_be_cancelled() -> None:
    seen = []

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    client = Client(waiting)
    client.send(GET)
    await asyncio.sleep(0)
    (task,) = client.shared.tasks
    task.cancel()
    await client.settled()
    assert seen == ["cancelled"]
    assert client.transport.aborted


async def test_shutting_down_lets_the_answer_under_way_end() -> None:
    held = Held(b"one")
    client, idle = Client(held), Client(held)
    client.send(GET + GET)
    for each in (client, idle):
        each.connection.shut_down()
    assert idle.transport.closed
    assert not client.transport.closed
    held.turn.release()
    await client.settled()
    assert [answer.body for answer in client.answers] == [b"one"]  # nothing sent ahead is begun
    assert client.transport.closed
