"""A grader served over HTTP on this machine: the other side of `http_grader`, and its test double.

    python -m rlhf.graders.http_server module:function --key-file FILE [--port N]

Prints the port once it listens. Loopback only: in a network, put a proxy with TLS before it.
"""

import argparse
import asyncio
import hmac
import sys
from pathlib import Path

import h11

from rlhf.graders import http_exchange, wire
from rlhf.graders.checking import answers_of
from rlhf.graders.functions import FunctionGrader, load
from rlhf.graders.protocol import BadAnswer, Grader

HOST = "127.0.0.1"
_IDLE_SECONDS = 60.0


class GraderServer:
    """Serves one grader. `async with` starts and stops it; `port` is then where it listens."""

    def __init__(self, grader: Grader, key: bytes, *, port: int = 0) -> None:
        self.port = port
        self._grader = grader
        self._key = wire.checked_key(key)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}/grade"

    async def __aenter__(self) -> "GraderServer":
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in sorted(self._connections, key=id):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        connection = h11.Connection(h11.SERVER)
        try:
            while await self._next(connection, reader, writer):
                connection.start_next_cycle()
        except (http_exchange.Disconnected, TimeoutError, asyncio.CancelledError):
            # Whoever asked has gone or stays silent, or the server is closing (only __aexit__
            # cancels, and asyncio would report a cancelled connection as an error).
            pass
        finally:
            writer.close()

    async def _next(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """One request; whether the connection can be used again."""
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                request = await http_exchange.receive(connection, reader, wire.MOST_BYTES)
        except http_exchange.TooLarge as error:
            await self._reply(connection, writer, 413, f"request too large: {error}".encode(), "")
            return False
        if request is None:
            return False
        status, body = await self._answer(request)
        signature = request.header(wire.SIGNATURE_HEADER)
        await self._reply(connection, writer, status, body, signature)
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _answer(self, request: http_exchange.Message) -> tuple[int, bytes]:
        expected = wire.request_signature(self._key, request.body)
        if not hmac.compare_digest(request.header(wire.SIGNATURE_HEADER), expected):
            return 401, b"the request is not signed with the key"
        try:
            samples = wire.decode_request(request.body)
        except BadAnswer as error:
            return 400, str(error).encode()
        return 200, wire.encode_reply(await answers_of(self._grader, samples))

    async def _reply(
        self,
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
        status: int,
        body: bytes,
        request_signature: str,
    ) -> None:
        headers = [
            ("content-type", "application/json" if status == 200 else "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
        ]
        if status == 200:
            signature = wire.reply_signature(self._key, request_signature, body)
            headers.append((wire.SIGNATURE_HEADER, signature))
        head = h11.Response(status_code=status, headers=headers)
        await http_exchange.send(connection, writer, head, body)


async def _run(grader: Grader, key: bytes, port: int) -> None:
    async with GraderServer(grader, key, port=port) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description="Serve a reward function on this machine.")
    parser.add_argument("function", help="module:function")
    parser.add_argument("--key-file", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    chosen = parser.parse_args(arguments)
    grader = FunctionGrader(load(chosen.function))
    asyncio.run(_run(grader, chosen.key_file.read_bytes().strip(), chosen.port))


if __name__ == "__main__":
    main(sys.argv[1:])
