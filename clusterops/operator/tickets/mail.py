"""Tickets as e-mail, over TLS: for people to read, with the whole evidence attached as JSON.

The Message-ID is made of the ticket's key, so a mail that is sent again after a crash is known for the
same one; while this process runs none is sent twice.
"""

import asyncio
import json
import smtplib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, parseaddr
from enum import StrEnum
from pathlib import Path

from clusterops.operator.tickets import letter
from clusterops.operator.tickets.port import Ticket, TicketError, redacted
from clusterops.operator.tickets.sent import SentTickets
from clusterops.operator.tickets.webhook import LOOPBACK

SECONDS = 20.0


class Security(StrEnum):
    """How the connection is protected."""

    TLS = "tls"
    STARTTLS = "starttls"
    NONE = "none"
    """On loopback only: a relay on this machine."""


@dataclass(frozen=True)
class MailServer:
    """Where mail is handed in."""

    host: str
    port: int
    security: Security = Security.STARTTLS
    username: str = ""
    password: str = ""
    ca_file: Path | None = None
    """Whom to trust; None = the system's authorities."""

    def __post_init__(self) -> None:
        if self.security is Security.NONE and self.host not in LOOPBACK:
            raise ValueError(f"mail to {self.host} would go in the clear; use starttls or tls")
        if self.security is Security.NONE and self.username:
            raise ValueError("a password is not sent without TLS")

    def __repr__(self) -> str:
        return f"MailServer({self.host}:{self.port}, {self.security})"


class MailTickets:
    """Sends one mail a ticket."""

    def __init__(
        self,
        server: MailServer,
        sender: str,
        recipients: Sequence[str],
        now: Callable[[], float],
    ) -> None:
        """`now` gives seconds since 1970. Raises ValueError for addresses that are none."""
        for address in (sender, *recipients):
            if "@" not in parseaddr(address)[1] or not address.isprintable():
                raise ValueError(f"not a mail address: {address!r}")
        if not recipients:
            raise ValueError("mail needs somebody to go to")
        self._server = server
        self._sender = sender
        self._recipients = tuple(recipients)
        self._now = now
        self._sent = SentTickets()

    async def open(self, ticket: Ticket) -> str:
        """Sends the mail unless it went already; returns the key. Raises TicketError."""
        return await self._sent.once(ticket.key, lambda: asyncio.to_thread(self._send, ticket))

    def message(self, ticket: Ticket) -> EmailMessage:
        """The mail of a ticket."""
        message = EmailMessage(policy=SMTP)
        message["From"] = self._sender
        message["To"] = ", ".join(self._recipients)
        message["Subject"] = letter.subject(ticket)
        message["Date"] = formatdate(self._now(), usegmt=True)
        message["Message-ID"] = f"<{ticket.key}@{parseaddr(self._sender)[1].partition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        message["X-Clusterops-Ticket"] = ticket.key
        message.set_content(letter.body(ticket))
        evidence = {"key": ticket.key, "title": ticket.title, **ticket.bundle}
        message.add_attachment(
            json.dumps(evidence, indent=2, sort_keys=True).encode(),
            maintype="application",
            subtype="json",
            filename=f"{ticket.key}.json",
        )
        return message

    def _send(self, ticket: Ticket) -> str:
        server = self._server
        try:
            with self._connection() as connection:
                if server.security is Security.STARTTLS:
                    connection.starttls(context=self._context())
                if server.username:
                    connection.login(server.username, server.password)
                connection.send_message(self.message(ticket), self._sender, list(self._recipients))
        except smtplib.SMTPAuthenticationError as error:
            # What the server answers may quote what it was sent.
            raise TicketError(
                f"{server.host} refuses {server.username!r} ({error.smtp_code}); check the password"
            ) from None
        except (OSError, smtplib.SMTPException, ValueError) as error:
            why = redacted(str(error))
            raise TicketError(f"{server.host} does not take mail: {why}") from error
        return ticket.key

    def _connection(self) -> smtplib.SMTP:
        server = self._server
        if server.security is Security.TLS:
            return smtplib.SMTP_SSL(
                server.host, server.port, timeout=SECONDS, context=self._context()
            )
        return smtplib.SMTP(server.host, server.port, timeout=SECONDS)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._server.ca_file)
