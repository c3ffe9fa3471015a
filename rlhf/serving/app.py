"""The server's routes: completions, chat completions, models, health, metrics.

A request is understood, let in, handed to the engine, and answered whole or as a stream of events. When
the client goes away its responses end at the next step.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rlhf.engine_requests import Completion, NewToken, QueueFull
from rlhf.serving import answers, metrics, requests
from rlhf.serving.engine_thread import EngineStopped, EngineThread, Sample, Ticket
from rlhf.serving.fields import ApiError, bad
from rlhf.serving.gate import Gate
from rlhf.serving.requests import Asked, Served
from rlhf.serving.streaming import check_end, pieces

Endpoint = Callable[[Request], Awaitable[Response]]
MOST_BODY_BYTES = 4 << 20


class Api:
    """What the routes share. `response_seconds` is the longest that a request may take."""

    def __init__(
        self, served: Served, engine: EngineThread, gate: Gate, response_seconds: float = 600.0
    ) -> None:
        self.served = served
        self.engine = engine
        self.gate = gate
        self.response_seconds = response_seconds

    def application(self) -> Starlette:
        """As an ASGI application."""
        routes = [
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self._guarded(self.report), methods=["GET"]),
            Route("/v1/models", self._guarded(self.models), methods=["GET"]),
            Route("/v1/models/{name:path}", self._guarded(self.models), methods=["GET"]),
            Route("/v1/completions", self._guarded(self.completions), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={404: _no_route, 405: _no_route})

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """The gate before an endpoint, and errors in the form that clients know."""

        async def guarded(request: Request) -> Response:
            try:
                self.gate.check(request.headers)
                return await endpoint(request)
            except ApiError as error:
                return refused(error)
            except QueueFull as error:
                return refused(ApiError(429, str(error), retry_after=1))
            except EngineStopped as error:
                return refused(ApiError(503, str(error), retry_after=5))

        return guarded

    async def health(self, _: Request) -> Response:
        """200 while requests are answered."""
        if self.engine.failed:
            return JSONResponse({"status": "failed"}, 500)
        if self.gate.draining:
            return JSONResponse({"status": "draining"}, 503)
        return JSONResponse({"status": "ok"})

    async def report(self, _: Request) -> Response:
        """Metrics of the engine."""
        found = await self.engine.report()
        return Response(metrics.exposition(found), media_type=metrics.CONTENT_TYPE)

    async def models(self, request: Request) -> Response:
        """The one model there is."""
        name = request.path_params.get("name")
        if name not in (None, self.served.name):
            raise ApiError(404, f"there is no model {name!r} here", code="model_not_found")
        model = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "clusterops"}
        return JSONResponse(model if name else {"object": "list", "data": [model]})

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        asked = requests.completion(await _json(request), self.served, _fresh_seed)
        return await self._answer(request, asked, self._head("cmpl", chat=False))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        asked = requests.chat(await _json(request), self.served, _fresh_seed)
        return await self._answer(request, asked, self._head("chatcmpl", chat=True))

    def _head(self, kind: str, *, chat: bool) -> answers.Head:
        created = int(datetime.now(UTC).timestamp())
        return answers.Head(chat, f"{kind}-{secrets.token_hex(12)}", self.served.name, created)

    async def _answer(self, request: Request, asked: Asked, head: answers.Head) -> Response:
        choices = len(asked.seeds)
        self.gate.enter(choices)
        try:
            samples = [
                Sample(f"{head.identity}/{index // asked.n}", index, *asked.choice(index))
                for index in range(choices)
            ]
            try:
                ticket = await self.engine.submit(samples)
            except ValueError as error:
                raise bad(str(error)) from error
        except BaseException:
            self.gate.leave(choices)
            raise
        if asked.stream:

            def over() -> None:
                self.engine.abort(ticket)
                self.gate.leave(choices)

            return EventStream(self._events(ticket, asked, head), over)
        return await self._whole(request, ticket, asked, head)

    async def _whole(
        self, request: Request, ticket: Ticket, asked: Asked, head: answers.Head
    ) -> Response:
        """Collects all choices; gives up when the client does, or when it takes too long."""
        collecting = asyncio.create_task(_collected(ticket))
        leaving = asyncio.create_task(_left(request))
        try:
            done, _ = await asyncio.wait(
                [collecting, leaving],
                timeout=self.response_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if collecting not in done:
                late = ApiError(504, f"no response within {self.response_seconds:g} s")
                return Response(status_code=499) if leaving in done else refused(late)
            completions = collecting.result()
        finally:
            for task in (collecting, leaving):
                task.cancel()
            self.engine.abort(ticket)
            self.gate.leave(len(asked.seeds))
        return JSONResponse(self._body(completions, asked, head))

    def _body(
        self, completions: list[Completion], asked: Asked, head: answers.Head
    ) -> dict[str, Any]:
        vocabulary = self.served.vocabulary
        stops = asked.parameters.stop_tokens
        choices = []
        for index, one in enumerate(completions):
            listed = None
            if asked.logprobs:
                rows = answers.scored(one, stops)
                listed = answers.logprobs(rows, vocabulary, chat=head.chat)
            choices.append(answers.choice(index, one, listed, chat=head.chat))
        written = sum(len(one.result.tokens) for one in completions)
        counts = answers.usage([len(prompt) for prompt in asked.prompts], written)
        return head.body(choices, piece=False) | {"usage": counts}

    async def _events(
        self, ticket: Ticket, asked: Asked, head: answers.Head
    ) -> AsyncIterator[bytes]:
        """Server-sent events; an error is one too, since the status is out already."""
        seconds = self.response_seconds
        try:
            async for body in pieces(ticket, asked, head, self.served.vocabulary, seconds):
                yield _event(body)
            yield b"data: [DONE]\n\n"
        except EngineStopped as error:
            yield _event(ApiError(500, str(error)).body())
        except ApiError as error:
            yield _event(error.body())
        except TimeoutError:
            yield _event(ApiError(504, f"no response within {seconds:g} s").body())


class EventStream(StreamingResponse):
    """Server-sent events. `over` is called in any case: sent to the end, or the client has gone."""

    def __init__(self, events: AsyncIterator[bytes], over: Callable[[], None]) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"cache-control": "no-cache"}
        )
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


async def _collected(ticket: Ticket) -> list[Completion]:
    """All choices, by number.

    Raises:
        EngineStopped: the engine is gone.
        ApiError: its numbers were none.
    """
    found: dict[int, Completion] = {}
    while len(found) < len(ticket.uids):
        choice, news = await ticket.events.get()
        if isinstance(news, EngineStopped):
            raise news
        if isinstance(news, NewToken):
            continue
        check_end(news)
        found[choice] = news
    return [found[index] for index in sorted(found)]


async def _left(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _json(request: Request) -> Any:
    """The body.

    Raises:
        ApiError: too large, or no JSON.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise ApiError(413, f"the body is larger than {MOST_BODY_BYTES} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad(f"the body is no JSON: {error}") from error


def refused(error: ApiError) -> Response:
    """An error as a response."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error.body(), error.status, headers)


async def _no_route(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    return refused(ApiError(status, f"there is no {request.method} {request.url.path[:200]}"))


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _fresh_seed() -> int:
    return secrets.randbits(63)
