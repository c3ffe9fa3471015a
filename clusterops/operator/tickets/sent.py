"""Which tickets went already: for ways that cannot tell a repetition by its key themselves."""

import asyncio
from collections.abc import Awaitable, Callable

MAX_KEYS = 10_000


class SentTickets:
    """Remembers keys for as long as this process runs."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._sending: dict[str, asyncio.Lock] = {}

    async def once(self, key: str, send: Callable[[], Awaitable[str]]) -> str:
        """The number of a key's ticket: of the first time, however often and at once it is asked for.

        What fails is not remembered. Raises what `send` raises.
        """
        async with self._sending.setdefault(key, asyncio.Lock()):
            if key not in self._numbers:
                number = await send()
                while len(self._numbers) >= MAX_KEYS:
                    oldest = next(iter(self._numbers))
                    del self._numbers[oldest]
                    self._sending.pop(oldest, None)
                self._numbers[key] = number
            return self._numbers[key]
