"""However a client's bytes are cut and whatever waits, each request gets its own answer, in order."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.apiserver_wire import Client

requests = st.lists(
    st.tuples(
        st.sampled_from(["GET", "POST", "PUT"]),
        st.binary(max_size=300),
        st.sampled_from(["length", "chunked"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


def encoded(number: int, method: str, body: bytes, coding: str, pauses: int) -> bytes:
    head = f"{method} /{number}?pauses={pauses} HTTP/1.1\r\nHost: x\r\n"
    if coding == "length":
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    half = len(body) // 2
    pieces = [piece for piece in (body[:half], body[half:]) if piece]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with path and body, after as many turns of the loop as the query says."""
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    for _ in range(int(scope["query_string"].partition(b"=")[2])):
        await asyncio.sleep(0)
    text = scope["path"].encode() + b" " + body
    headers = [(b"content-length", str(len(text)).encode())] if len(text) % 2 else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    half = len(text) // 2
    await send({"type": "http.response.body", "body": text[:half], "more_body": True})
    await send({"type": "http.response.body", "body": text[half:]})


@settings(max_examples=150, deadline=None)
@given(requests=requests, data=st.data())
def test_each_request_gets_its_answer_however_its_bytes_are_cut(
    requests: list[tuple[str, bytes, str, int]], data: st.DataObject
) -> None:
    stream = b"".join(encoded(number, *request) for number, request in enumerate(requests))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    ends = [*cuts, len(stream)]

    async def run() -> list[bytes]:
        client = Client(echo)
        start = 0
        for end in ends:
            client.send(stream[start:end])
            start = end
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
        await client.settled()
        assert not client.transport.closed
        assert client.transport.reading
        return [answer.body for answer in client.answers]

    expected = [b"/%d %b" % (number, request[1]) for number, request in enumerate(requests)]
    assert asyncio.run(run()) == expected
