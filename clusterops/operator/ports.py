"""Rendezvous ports for jobs that share one loopback: no two live attempts have the same."""

from collections.abc import Iterable

Key = tuple[str, str]


class PortBook:
    """Offers ports of a range in turn, so that one that somebody else holds is not offered again soon.

    What live attempts use is in their status; between an offer and that status the offer itself is
    remembered, because several jobs are decided at the same time.
    """

    def __init__(self, first: int, last: int) -> None:
        if not 0 < first <= last < 65_536:
            raise ValueError(f"no port range: {first} to {last}")
        self._first = first
        self._count = last - first + 1
        self._next = 0
        self._offers: dict[Key, int] = {}

    def offer(self, key: Key, used: Iterable[int]) -> int | None:
        """A port for the next attempt of `key`; None when all are in use.

        The same until `taken` or `forget`.
        """
        if key in self._offers:
            return self._offers[key]
        busy = {*used, *self._offers.values()}
        for step in range(self._count):
            port = self._first + (self._next + step) % self._count
            if port not in busy:
                self._next = (port - self._first + 1) % self._count
                self._offers[key] = port
                return port
        return None

    def settle(self, key: Key) -> None:
        """The offer was used, as the job's status now says, or is not wanted any more."""
        self._offers.pop(key, None)
