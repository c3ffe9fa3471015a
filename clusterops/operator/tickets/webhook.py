"""Tickets as signed POST requests.

The body's HMAC-SHA256 stands in a header, with the time in the signed text against replays; the key
of the ticket is the idempotency key, so a receiver can tell a repetition.
"""

import asyncio
import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from clusterops.operator.tickets.port import Ticket, TicketError

SECONDS = 20.0
MAX_ANSWER_BYTES = 65_536
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class WebhookTickets:
    """Posts to one URL."""

    def __init__(self, url: str, secret: bytes, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970. Raises ValueError for a URL that is not safe."""
        parts = urlsplit(url)
        if not parts.hostname or parts.scheme not in ("http", "https"):
            raise ValueError(f"not a web address: {url!r}")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError(f"{url!r} would send evidence in the clear; use https")
        if len(secret) < 16:
            raise ValueError("the secret of a webhook has at least 16 bytes")
        self._parts = parts
        self._secret = secret
        self._now = now

    async def open(self, ticket: Ticket) -> str:
        """Posts the ticket; returns the `id` of the answer, or the key. Raises TicketError."""
        return await asyncio.to_thread(self._post, ticket)

    def _post(self, ticket: Ticket) -> str:
        body = json.dumps({"key": ticket.key, "title": ticket.title, **ticket.bundle}).encode()
        moment = str(int(self._now()))
        signed = hmac.new(self._secret, moment.encode() + b"." + body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": ticket.key,
            "X-Clusterops-Timestamp": moment,
            "X-Clusterops-Signature": f"sha256={signed}",
        }
        connection = self._connection()
        try:
            path = self._parts.path or "/"
            query = f"?{self._parts.query}" if self._parts.query else ""
            connection.request("POST", path + query, body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise TicketError(f"{self._parts.hostname} does not take tickets: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise TicketError(f"{self._parts.hostname} refused a ticket: HTTP {answer.status}")
        return _number(content) or ticket.key

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=SECONDS)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)


def _number(content: bytes) -> str | None:
    try:
        decoded = json.loads(content)
    except (ValueError, RecursionError):
        return None
    found = decoded.get("id") if isinstance(decoded, dict) else None
    if not isinstance(found, str | int) or isinstance(found, bool):
        return None
    text = "".join(c for c in str(found) if c.isprintable())[:200]
    return text or None
