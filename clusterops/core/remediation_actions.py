"""The steps of a remediation as values: whoever applies them decides nothing."""

from dataclasses import dataclass

from clusterops.api.node_health import Rung
from clusterops.core.remediation_budget import Attempt
from clusterops.core.remediation_view import Remedy


@dataclass(frozen=True)
class PutTaint:
    """Keeps new pods away, and tells the jobs on the node to save within so many seconds and to go
    on elsewhere; 0 = there is nothing to save any more.
    """

    value: str
    notice_seconds: int


@dataclass(frozen=True)
class RemoveTaint:
    """Gives the node back."""


@dataclass(frozen=True)
class WriteRemedy:
    """Writes down where the remediation is, and what was begun or has failed: in one write, so that
    no end of the operator leaves the one without the other.
    """

    remedy: Remedy
    attempt: Attempt | None = None


@dataclass(frozen=True)
class Execute:
    """Carries out a rung, once for its key, and not after it expired."""

    key: str
    rung: Rung
    incident: str
    boot_id: str
    gpus: tuple[str, ...]
    expires: float | None


@dataclass(frozen=True)
class OpenTicket:
    """Opens the ticket of an incident, or finds it."""

    incident: str
    cause: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Verify:
    """Starts the checks that prove the node healthy, unless they run."""

    key: str


@dataclass(frozen=True)
class EndVerification:
    """Clears the checks' remains away."""


Action = PutTaint | RemoveTaint | WriteRemedy | Execute | OpenTicket | Verify | EndVerification
