"""The engine in a thread of its own, spoken to from an event loop.

Only this thread touches the engine. Orders come through a queue and are carried out between steps;
tokens and results go back to the loop once a step, all together.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from rlhf.engine import PagedEngine
from rlhf.engine_requests import Completion, FullParameters, NewToken
from rlhf.engine_stats import EngineReport

_IDLE_SECONDS = 0.5
T = TypeVar("T")


class EngineStopped(RuntimeError):
    """The engine has failed or was stopped; nothing more comes of it."""


class Sample(NamedTuple):
    """What one choice asks of the engine."""

    prompt_id: str
    sample_idx: int
    prompt: list[int]
    parameters: FullParameters


class Event(NamedTuple):
    """News of a choice, by number: a token, its end, or that the engine is gone."""

    choice: int
    news: NewToken | Completion | EngineStopped


class Ticket:
    """The choices of one request, and their news in order of happening."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.uids: list[int] = []
        self.events: asyncio.Queue[Event] = asyncio.Queue()


class EngineThread:
    """Starts on entry of the context manager, ends on exit; what runs then ends as failed."""

    def __init__(self, engine: PagedEngine) -> None:
        self._engine = engine
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._tickets: dict[int, tuple[Ticket, int]] = {}
        self._ending = False
        self._gone: EngineStopped | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself."""
        return self._gone is not None

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    async def stop(self, seconds: float) -> None:
        """Ends within so many seconds; open choices are told."""
        self._orders.put(self._end)
        await asyncio.to_thread(self._thread.join, seconds)

    async def submit(self, samples: Sequence[Sample]) -> Ticket:
        """Hands in the choices of a request, all or none.

        Raises:
            EngineStopped: there is no engine any more.
            Whatever the engine refuses them with.
        """
        ticket = Ticket(asyncio.get_running_loop())

        def order() -> None:
            try:
                for index, sample in enumerate(samples):
                    uid = self._engine.submit(*sample)
                    ticket.uids.append(uid)
                    self._tickets[uid] = (ticket, index)
            except (ValueError, RuntimeError):
                self._abort(ticket)
                raise

        await self.ask(order)
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """Ends what is left of a request; nobody waits for it any more."""
        self._orders.put(lambda: self._abort(ticket))

    async def ask(self, order: Callable[[], T]) -> T:
        """Carries something out between two steps, in the engine's thread.

        Raises:
            EngineStopped: there is no engine any more.
            Whatever it raises.
        """
        answer: Future[T] = Future()

        def carried_out() -> None:
            try:
                answer.set_result(order())
            except (ValueError, RuntimeError) as error:
                answer.set_exception(error)

        if self._gone is not None:
            raise self._gone
        self._orders.put(carried_out)
        waiting = asyncio.wrap_future(answer)
        while not waiting.done():
            await asyncio.wait([waiting], timeout=1.0)
            if not waiting.done() and not self._thread.is_alive():
                waiting.cancel()
                raise self._gone or EngineStopped("the engine was stopped")
        return waiting.result()

    async def report(self) -> EngineReport:
        """Memory, work and times.

        Raises:
            EngineStopped: there is no engine any more.
        """
        return await self.ask(self._engine.report)

    # ---- in the thread

    def _run(self) -> None:
        try:
            while not self._ending:
                self._take_orders()
                if self._tickets and not self._ending:
                    self._deliver()
            self._tell_all(EngineStopped("the server is shutting down"))
        except BaseException as error:
            self._tell_all(EngineStopped(f"the engine failed: {type(error).__name__}: {error}"))
            raise

    def _take_orders(self) -> None:
        """Carries out what has come; waits a little when there is nothing else to do."""
        wait = not self._tickets
        while True:
            try:
                order = (
                    self._orders.get(timeout=_IDLE_SECONDS) if wait else self._orders.get_nowait()
                )
            except queue.Empty:
                return
            order()
            wait = False

    def _deliver(self) -> None:
        tokens, ended = self._engine.advance()
        news: dict[Ticket, list[Event]] = {}

        def add(uid: int, one: NewToken | Completion) -> None:
            ticket, choice = self._tickets.get(uid, (None, 0))
            if ticket is not None:
                news.setdefault(ticket, []).append(Event(choice, one))

        for token in tokens:
            add(token.uid, token)
        for completion in ended:
            add(completion.result.uid, completion)
            self._tickets.pop(completion.result.uid, None)
        for ticket, events in news.items():
            ticket.loop.call_soon_threadsafe(_put, ticket.events, events)

    def _abort(self, ticket: Ticket) -> None:
        for uid in ticket.uids:
            if self._tickets.pop(uid, None):
                self._engine.abort(uid)
        if not self._tickets:
            self._engine.advance()

    def _end(self) -> None:
        self._ending = True

    def _tell_all(self, gone: EngineStopped) -> None:
        self._gone = gone
        for ticket, index in self._tickets.values():
            ticket.loop.call_soon_threadsafe(_put, ticket.events, [Event(index, gone)])
        self._tickets = {}


def _put(events: "asyncio.Queue[Event]", new: list[Event]) -> None:
    for event in new:
        events.put_nowait(event)
