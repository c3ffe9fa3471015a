"""Tickets to the chat and paging services that Apprise knows (the extra `tickets`).

The addresses of services hold their secrets, so none is ever shown.
"""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from clusterops.operator.tickets import letter
from clusterops.operator.tickets.port import Ticket, TicketError
from clusterops.operator.tickets.sent import SentTickets


class AppriseTickets:
    """Sends one notification a ticket, to every address."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Raises ValueError for an address that is none, and when Apprise is not installed."""
        try:
            self._apprise: Any = importlib.import_module("apprise")
        except ModuleNotFoundError as error:
            raise ValueError(
                "Apprise is not installed: pip install 'clusterops[tickets]'"
            ) from error
        if not addresses:
            raise ValueError("notifications need an address to go to")
        self._services = self._apprise.Apprise()
        for number, address in enumerate(addresses, 1):
            if not self._services.add(address):
                raise ValueError(f"address {number} of {len(addresses)} is none that Apprise knows")
        self._sent = SentTickets()

    def __repr__(self) -> str:
        return f"AppriseTickets({len(self._services)} addresses)"

    async def open(self, ticket: Ticket) -> str:
        """Notifies unless it did already; returns the key. Raises TicketError."""
        return await self._sent.once(ticket.key, lambda: asyncio.to_thread(self._notify, ticket))

    def _notify(self, ticket: Ticket) -> str:
        done = self._services.notify(
            title=letter.subject(ticket),
            body=letter.body(ticket),
            body_format=self._apprise.NotifyFormat.TEXT,
            notify_type=self._apprise.NotifyType.FAILURE,
        )
        if not done:
            raise TicketError(
                f"not all of {len(self._services)} services took a notification; their names stand in"
                " the log of Apprise"
            )
        return ticket.key
