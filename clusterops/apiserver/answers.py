"""How answers are sent: one whole body, or many pieces of a known total size."""

from collections.abc import Iterable, Sequence

from clusterops.apiserver.request import Send

PIECE = 512 * 1024  # bytes; large lists are sent in pieces, so that other requests get their turn
JSON_TYPE = (b"content-type", b"application/json")

Headers = Sequence[tuple[bytes, bytes]]


async def send_body(send: Send, status: int, body: bytes, headers: Headers = (JSON_TYPE,)) -> None:
    """Send one whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_joined(send: Send, status: int, parts: Sequence[bytes]) -> None:
    """Send the concatenation of `parts` without ever holding all of it twice."""
    total = sum(map(len, parts))
    if total <= PIECE:
        await send_body(send, status, b"".join(parts))
        return
    length = (b"content-length", str(total).encode())
    await send({"type": "http.response.start", "status": status, "headers": [JSON_TYPE, length]})
    for piece in in_pieces(parts):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def in_pieces(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Consecutive parts joined to pieces of about PIECE bytes."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def warning_headers(warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """A Warning header for each text, as RFC 7234 quotes it."""
    return [(b"warning", f'299 - "{_quoted(text)}"'.encode()) for text in warnings]


def _quoted(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
