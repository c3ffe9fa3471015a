"""Reward functions of the user: `function(prompt, response, **context) -> number or parts`.

An ordinary function is called in a thread of its own (a hung one cannot be stopped there: use
`processes` for code that may hang), a coroutine function in the event loop.
"""

import asyncio
import importlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rlhf.graders.protocol import Answer, GraderFailed, Sample, score_of
from rlhf.identity import Score

_MOST_HUNG_THREADS = 8


class BadFunction(ValueError):
    """A reward function that cannot be found, or cannot be called with a prompt and a response."""


def load(reference: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises:
        BadFunction: there is none, or its module cannot be imported.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise BadFunction(f"{reference!r} names no function; write it as module:function")
    try:
        found: object = importlib.import_module(module_name)
    # The user's code: whatever it raises while it is imported is told as its own.
    except Exception as error:
        raise BadFunction(
            f"the module of {reference!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadFunction(f"{module_name} has no function {name}")
    return found


class Called:
    """A reward function with what it wants to know: prompt, response, and parts of the context.

    Raises:
        BadFunction: it cannot be called so.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.is_async = inspect.iscoroutinefunction(function)
        parameters = inspect.signature(function).parameters
        self._takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        try:
            given = inspect.signature(function).bind_partial("prompt", "response").arguments
        except TypeError as error:
            raise BadFunction(
                f"{self.name}{inspect.signature(function)} cannot be called with a prompt and a "
                f"response: {error}. A reward function is function(prompt, response, **context)"
            ) from None
        by_name = {
            name: name in given
            for name, each in parameters.items()
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        }
        # Given by place: a part of the context of that name, like the demonstration of a line of
        # prompts, which is called `response` too, would be given a second time.
        self._given = frozenset(name for name, taken in by_name.items() if taken)
        self._takes = frozenset(by_name) - self._given

    def __call__(self, sample: Sample) -> Any:
        """Calls it for a sample; what it returns, or a coroutine."""
        context = {
            name: value
            for name, value in sample.context.items()
            if (name not in self._given if self._takes_all else name in self._takes)
        }
        return self.function(sample.prompt, sample.response, **context)


class FunctionGrader:
    """Scores by a function in this process.

    `inline` calls an ordinary function in the event loop itself: for functions of microseconds, and
    none other, since all else waits meanwhile.
    """

    largest_batch = 1

    def __init__(
        self, function: Callable[..., Any], *, pure: bool = False, inline: bool = False
    ) -> None:
        self._called = Called(function)
        self.name = self._called.name
        self.pure = pure
        self._inline = inline
        self._running = 0

    async def grade(self, samples: Sequence[Sample]) -> list[Answer]:
        """One call per sample.

        Raises:
            GraderFailed: too many threads hang.
            Exception: whatever the function raises.
        """
        return [sample.answered(await self._score(sample)) for sample in samples]

    def score(self, sample: Sample) -> Score:
        """Scores at once, in the caller's thread: for audits by a pure function.

        Raises:
            GraderFailed: the function is asynchronous.
        """
        if self._called.is_async:
            raise GraderFailed(f"{self.name} is asynchronous and cannot be called at once")
        return score_of(self._called(sample))

    async def close(self) -> None:
        """Nothing was started that outlives a call."""

    async def _score(self, sample: Sample) -> Score:
        if self._called.is_async:
            return score_of(await self._called(sample))
        if self._inline:
            return score_of(self._called(sample))
        return score_of(await self._in_thread(sample))

    async def _in_thread(self, sample: Sample) -> Any:
        if self._running >= _MOST_HUNG_THREADS * 32:
            raise GraderFailed(
                f"{self._running} calls of {self.name} hang in threads, which cannot be stopped: run "
                "it in processes instead"
            )
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            self._running -= 1
            if not result.done():
                if error is None:
                    result.set_result(value)
                else:
                    result.set_exception(error)

        def work() -> None:
            try:
                value, error = self._called(sample), None
            # The function's failure is raised where its result is awaited.
            except Exception as raised:
                value, error = None, raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, error)

        self._running += 1
        # A daemon: a function that hangs must not keep the process from ending.
        threading.Thread(target=work, name=f"grader {self.name}", daemon=True).start()
        return await result
