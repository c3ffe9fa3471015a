"""What a ticket for the vendor holds, and the port that adapters implement. Pure.

A ticket is one and the same for (node, GPUs, class of fault, incident), however often it is opened.
Everything in it may leave the site: secrets are blacked out.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from clusterops.core.remediation_actions import OpenTicket
from clusterops.core.remediation_budget import Attempt

_NAMES = (
    r"(?:token|passwo?r?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|authorization|credentials?|cookie)"
)
_SECRETS = re.compile(
    r"(?i)"
    r"(\b(?:bearer|basic)\s{1,4})[\w.~+/=-]{6,}"
    rf"|([\w-]{{0,40}}{_NAMES}[\w-]{{0,40}}[\"']?\s{{0,3}}[:=]\s{{0,3}}(?:(?:bearer|basic)\s{{1,4}})?)"
    r"(?:\"[^\"]{1,1000}\"|'[^']{1,1000}'|[^\s\"',;&]{3,})"
    r"|\b(eyJ)[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|((?:AKIA|ASIA|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abeprs]-|sk-|hf_|AIza))[\w-]{8,}"
    r"|([a-z][a-z0-9+.-]{1,12}://[^\s/:@]{0,64}:)[^\s/@]{1,128}(?=@)"
    r"|(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?!\[redacted)[\s\S]{0,8000}?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
)
_SECRET_NAME = re.compile(rf"(?i){_NAMES}")
MAX_TEXT = 2000
BOARD = ("uuid", "busId", "serial", "slot", "vbios", "driver", "verdict")
"""What a vendor asks of a board, by its names in NodeHealth."""


class TicketError(Exception):
    """A ticket could not be opened; the text says why. It is tried again."""


@dataclass(frozen=True)
class Ticket:
    """A ticket. `bundle` is the evidence as JSON values."""

    key: str
    """The same for the same fault: what adapters tell doubles by."""
    title: str
    bundle: dict[str, Any]


class Tickets(Protocol):
    """Where tickets go."""

    async def open(self, ticket: Ticket) -> str:
        """Opens a ticket, or finds the one of its key; returns its number. Raises TicketError."""
        ...


class NoTickets:
    """No system is named: the ticket is its key, and stands in NodeHealth alone."""

    async def open(self, ticket: Ticket) -> str:
        """The key."""
        return ticket.key


def ticket_of(
    health: Mapping[str, Any], wanted: OpenTicket, attempts: tuple[Attempt, ...]
) -> Ticket:
    """The ticket of an incident: which board, what was seen and when, what was tried."""
    node = health["metadata"]["name"]
    status = health.get("status") or {}
    concerned = [
        gpu for gpu in status.get("gpus") or () if not wanted.gpus or gpu.get("uuid") in wanted.gpus
    ]
    incident: Mapping[str, Any] = next(
        (i for i in status.get("incidents") or () if i.get("id") == wanted.incident), {}
    )
    tried = [
        {"rung": a.rung.value, "at": a.at, "failed": a.failed}
        for a in attempts
        if a.incident == wanted.incident
    ]
    bundle = {
        "node": node,
        "class": wanted.cause,
        "incident": {"id": wanted.incident, **incident},
        "gpus": [{name: gpu[name] for name in BOARD if name in gpu} for gpu in concerned],
        "evidence": [
            *(e for gpu in concerned for e in gpu.get("evidence") or ()),
            *(status.get("evidence") or ()),
        ],
        "tried": tried,
    }
    identity = "\0".join([node, ",".join(sorted(wanted.gpus)), wanted.cause, wanted.incident])
    key = hashlib.blake2s(identity.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return Ticket(f"gpu-{key}", f"{node}: {wanted.cause}", redacted(bundle))


def redacted(value: Any) -> Any:
    """The same value with what looks like a secret blacked out and texts bounded."""
    if isinstance(value, str):
        return _SECRETS.sub(_kept, value[:MAX_TEXT])[:MAX_TEXT]
    if isinstance(value, Mapping):
        return {redacted(str(name)): _by_name(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return value


def _by_name(name: str, value: Any) -> Any:
    """What stands under a name that says it is a secret is one."""
    if isinstance(value, str) and value and _SECRET_NAME.search(name):
        return "[redacted]"
    return redacted(value)


def _kept(found: re.Match[str]) -> str:
    return next((group for group in found.groups() if group), "") + "[redacted]"
