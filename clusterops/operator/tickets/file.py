"""Tickets as files in a folder: for sites whose system reads them, and for looking at them."""

import asyncio
import json
import os
import tempfile
from pathlib import Path

from clusterops.operator.tickets.port import Ticket, TicketError


class FileTickets:
    """One JSON file a ticket, named by its key, never written twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self, ticket: Ticket) -> str:
        """Writes the file unless it is there; returns its name. Raises TicketError."""
        return await asyncio.to_thread(self._write, ticket)

    def _write(self, ticket: Ticket) -> str:
        name = f"{ticket.key}.json"
        content = json.dumps(
            {"key": ticket.key, "title": ticket.title, **ticket.bundle}, indent=2, sort_keys=True
        )
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Written aside and linked: a crash leaves a whole file or none, and the first one stays.
            descriptor, aside = tempfile.mkstemp(prefix=f".{name}.", dir=self._folder)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content + "\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(aside, self._folder / name)
            except FileExistsError:
                return name
            finally:
                Path(aside).unlink()
        except OSError as error:
            raise TicketError(f"cannot write a ticket into {self._folder}: {error}") from error
        return name
