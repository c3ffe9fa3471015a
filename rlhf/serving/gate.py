"""Who may ask: the key, the names this server answers to, and how much may be under way.

A page in a browser must not be able to use a server of this machine: so the Host is checked against
rebinding of names, and requests that carry the Origin of another site are turned away. A server that
other machines reach has names that nobody can list; there the key alone decides.
"""

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from rlhf.serving.fields import ApiError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Gate:
    """Counts what is under way and lets in what may come. One event loop."""

    def __init__(self, key: str | None, hosts: Sequence[str] | None, most: int) -> None:
        """`most` responses may be under way; without a `key` everybody on this machine may ask.

        `hosts` are the names it answers to, None for any.
        """
        if key is None and hosts is None:
            raise ValueError("a server of any name needs a key")
        self._key = key.encode() if key is not None else None
        self._hosts = None if hosts is None else tuple(hosts)
        self._most = most
        self.under_way = 0
        self.left = asyncio.Event()
        """Set whenever something is done."""
        self.draining = False

    def check(self, headers: Mapping[str, str]) -> None:
        """Lets a request in.

        Raises:
            ApiError: 403 for another host or site, 401 for a wrong key.
        """
        if self._hosts is not None:
            _check_names(headers, self._hosts)
        if self._key is None:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self._key)
        if kind.lower() != "bearer" or not right:
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key")

    def enter(self, responses: int) -> None:
        """Room for so many responses.

        Raises:
            ApiError: 503 while the server ends, 429 when too much is under way.
        """
        if self.draining:
            raise ApiError(503, "the server is shutting down", retry_after=5)
        if self.under_way + responses > self._most:
            raise ApiError(
                429,
                f"{self.under_way} of {self._most} responses are under way; try again",
                code="rate_limit_exceeded",
                retry_after=1,
            )
        self.under_way += responses

    def leave(self, responses: int) -> None:
        """They are done, or nobody waits for them any more."""
        self.under_way -= responses
        self.left.set()


def _check_names(headers: Mapping[str, str], hosts: tuple[str, ...]) -> None:
    if _name(f"//{headers.get('host', '')}") not in hosts:
        raise ApiError(403, "this server does not answer to that Host")
    origin = headers.get("origin")
    if origin is not None and _name(origin) not in hosts:
        raise ApiError(403, "requests from pages of other sites are not answered")


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # brackets that are no address
        return None
