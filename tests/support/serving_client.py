"""A running server of a small model, and a client that speaks plain HTTP to it."""

import asyncio
import http.client
import json
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import torch

from rlhf.engine_settings import Settings
from rlhf.kv.plan import Limits
from rlhf.kv.waiting import Order
from rlhf.model.decoder import Decoder
from rlhf.model.shape import Shape
from rlhf.serving.chat import PlainTemplate
from rlhf.serving.loading import Loaded
from rlhf.serving.run import ServeConfig, opened, serve
from rlhf.tasks.vocabulary import Bytes

NAME = "small"
SECONDS = 60


def byte_model(context: int = 256) -> Decoder:
    """A model over bytes that mostly writes letters."""
    model = Decoder(Shape(258, 32, 2, 4, context), 3).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.12, generator=generator)
    return model


def loaded(context: int = 256) -> Loaded:
    return Loaded(NAME, byte_model(context), Bytes(), PlainTemplate(), 0)


class Reply(NamedTuple):
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of server-sent events; the last is the mark of the end."""
        found = [part.removeprefix(b"data: ") for part in self.body.split(b"\n\n") if part]
        return [one.decode() if one == b"[DONE]" else json.loads(one) for one in found]


class Client:
    """One server. Calls are made in threads, each with a connection of its own."""

    def __init__(self, port: int, key: str | None) -> None:
        self.port = port
        self.key = key

    def open(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def headers(self, more: dict[str, str]) -> dict[str, str]:
        auth = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {"Content-Type": "application/json", **auth, **more}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection = self.open()
        try:
            text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request(method, path, text, self.headers(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    async def get(self, path: str, **headers: str) -> Reply:
        return await asyncio.to_thread(self.call, "GET", path, None, **headers)

    async def post(self, path: str, body: Any, **headers: str) -> Reply:
        return await asyncio.to_thread(self.call, "POST", path, body, **headers)

    async def complete(self, **fields: Any) -> Reply:
        return await self.post("/v1/completions", {"model": NAME, "prompt": "hello"} | fields)

    async def chat(self, content: Any = "hello", **fields: Any) -> Reply:
        messages = [{"role": "user", "content": content}]
        body = {"model": NAME, "messages": messages} | fields
        return await self.post("/v1/chat/completions", body)


class Running(NamedTuple):
    """A client, and what ends the server."""

    client: Client
    stop: asyncio.Event
    task: "asyncio.Task[None]"
    hurry: asyncio.Event


@asynccontextmanager
async def running(*, key: str | None = None, context: int = 256, seats: int = 8, **more: Any):
    """A server of its own on a free port."""
    engine = Settings(
        blocks=200, block_size=8, limits=Limits(seats=seats), order=Order(longest_first=False)
    )
    config = ServeConfig(port=0, engine=engine, **more)
    stop, hurry = asyncio.Event(), asyncio.Event()
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with opened(config) as entrance:
        task = asyncio.create_task(
            serve(loaded(context), config, stop, ready, entrance=entrance, hurry=hurry)
        )
        await asyncio.wait([task, ready], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        try:
            yield Running(Client(ready.result(), key), stop, task, hurry)
        finally:
            stop.set()
            await asyncio.wait([task], timeout=SECONDS)
