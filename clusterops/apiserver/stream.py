"""An answer that is sent as it comes about, and the two ways in which waiting for more ends."""

import asyncio

from clusterops.apiserver.request import Receive, Send
from clusterops.apiserver.ring import Ring


class Stream:
    """A chunked answer to a client that may leave at any moment.

    To notice that, the client's side has to be read all the time: a task does, from `begin` to
    `end`. `gone` is set when the client left.
    """

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send = send
        self._receive = receive
        self._waiter: asyncio.Future[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self.gone = False

    async def begin(self, content_type: bytes) -> None:
        """Send the headers."""
        headers = [(b"content-type", content_type), (b"cache-control", b"no-cache, private")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        # An empty piece makes servers that wait for the first one send the headers.
        await self.send(b"")
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def send(self, piece: bytes) -> None:
        """Send one piece; waits while the client reads more slowly than we write."""
        if not self.gone:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def wait(self, ring: Ring | None, seconds: float) -> None:
        """Until `ring` has something new, the client leaves, or `seconds` are over."""
        if self.gone or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        if ring is not None:
            ring.wait(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
            if ring is not None:
                ring.forget(waiter)

    async def end(self) -> None:
        """End the answer in order."""
        if self._listening is not None:
            self._listening.cancel()
        if not self.gone:
            await self._send({"type": "http.response.body", "body": b""})
