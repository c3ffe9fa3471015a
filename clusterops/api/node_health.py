"""NodeHealth: what the health daemon found on a node, and what is being done about it.

One object a node, of the node's name. `status` is the daemon's alone, `spec.remediation` the
operator's alone: neither writes the other's half.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr

from clusterops.api.wire import Conditions, Metadata, Text, Timestamp, WireModel, map_list

MAX_GPUS = 64
MAX_EVIDENCE = 64
MAX_INCIDENTS = 64


class Verdict(StrEnum):
    """What should happen to a node or a GPU, least severe first."""

    HEALTHY = "Healthy"
    WATCH = "Watch"
    RESTART_APP = "RestartApp"
    RESET_GPU = "ResetGpu"
    REBOOT_NODE = "RebootNode"
    HARDWARE_TICKET = "HardwareTicket"


class Rung(StrEnum):
    """The actions of the remediation ladder, least drastic first."""

    NONE = "none"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    HARDWARE_TICKET = "hardware_ticket"


class RemediationState(StrEnum):
    """How far the current action is."""

    PLANNED = "Planned"
    DRAINING = "Draining"
    RUNNING = "Running"
    VERIFYING = "Verifying"
    DONE = "Done"
    FAILED = "Failed"
    EXPIRED = "Expired"


Word = Annotated[StrictStr, Field(min_length=1, max_length=253)]


class Remediation(WireModel):
    """The action under way. It acts on one incident in one boot, and not after it expired."""

    incident: Word
    """The id of the incident that it answers."""
    boot_id: Annotated[StrictStr, Field(max_length=64)] | None = None
    """The boot in which the fault was seen; after a reboot the action is stale."""
    rung: Rung
    """The action."""
    state: RemediationState = RemediationState.PLANNED
    """How far it is."""
    expires: Timestamp | None = None
    """Not to be carried out after this moment."""
    ticket: Annotated[StrictStr, Field(max_length=253)] | None = None
    """The vendor's or the ticket system's id."""


class NodeHealthSpec(WireModel):
    """What the operator wants done."""

    remediation: Remediation | None = None


class Evidence(WireModel):
    """One observation that a verdict rests on."""

    source: Word
    """Where it was seen: kmsg, nvml, pci, dcgm."""
    observed_at: Timestamp
    """When it was seen."""
    boot_id: Annotated[StrictStr, Field(max_length=64)] | None = None
    """The boot in which it was seen."""
    code: Annotated[StrictInt, Field(ge=0)] | None = None
    """The Xid, when it is one."""
    count: Annotated[StrictInt, Field(ge=1)] | None = None
    """How often, when seen more than once."""
    text: Text
    """The line or the reading itself."""


class Gpu(WireModel):
    """One GPU of the node."""

    uuid: Word
    """As the driver names it."""
    bus_id: Annotated[StrictStr, Field(max_length=32)] | None = None
    """PCI address."""
    serial: Annotated[StrictStr, Field(max_length=64)] | None = None
    """The board's serial number, for the vendor."""
    vbios: Annotated[StrictStr, Field(max_length=64)] | None = None
    """Its firmware's version, for the vendor."""
    slot: Annotated[StrictStr, Field(max_length=128)] | None = None
    """Where it sits: chassis, slot and module, as far as they are known."""
    driver: Annotated[StrictStr, Field(max_length=64)] | None = None
    """The version of the driver that it runs with."""
    resets_with: Annotated[tuple[Word, ...], Field(max_length=MAX_GPUS)] = ()
    """The other GPUs, by UUID, that the hardware resets together with it."""
    verdict: Verdict
    """What should happen to it."""
    evidence: Annotated[tuple[Evidence, ...], Field(max_length=MAX_EVIDENCE)] = ()
    """Why, newest last."""


class Incident(WireModel):
    """Faults that belong together and are answered by one action."""

    id: Word
    """Unique for ever."""
    verdict: Verdict
    """The action that it calls for."""
    opened_at: Timestamp
    """When it began."""
    closed_at: Timestamp | None = None
    """When it was resolved; absent while it is open."""
    boot_id: Annotated[StrictStr, Field(max_length=64)] | None = None
    """The boot in which it began."""
    gpus: Annotated[tuple[Word, ...], Field(max_length=MAX_GPUS)] = ()
    """UUIDs of the GPUs concerned; none = the whole node."""
    message: Text | None = None
    """What happened, in words."""


class NodeHealthStatus(WireModel):
    """What the daemon found."""

    observed_generation: Annotated[StrictInt, Field(ge=0)] | None = None
    """The generation of the spec that the daemon has seen."""
    verdict: Verdict | None = None
    """The gravest of the GPUs' and the node's own."""
    since: Timestamp | None = None
    """When the verdict last changed."""
    message: Text | None = None
    """The verdict in words."""
    heartbeat_at: Timestamp | None = None
    """When the daemon last wrote; a sign of life."""
    gpus: tuple[Gpu, ...] = map_list("uuid", at_most=MAX_GPUS)
    """Each GPU of the node."""
    evidence: Annotated[tuple[Evidence, ...], Field(max_length=MAX_EVIDENCE)] = ()
    """What concerns the node as a whole, newest last."""
    incidents: tuple[Incident, ...] = map_list("id", at_most=MAX_INCIDENTS)
    """Open and recent incidents."""
    conditions: Conditions = map_list("type", at_most=16)
    """Standard conditions."""


class NodeHealth(WireModel):
    """The health of one node's GPUs and what is being done about it."""

    api_version: Literal["clusterops.io/v1alpha1"]
    kind: Literal["NodeHealth"]
    metadata: Metadata
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus | None = None
