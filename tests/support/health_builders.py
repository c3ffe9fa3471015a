"""Events and histories in a line, for tests of GPU health."""

from typing import Any

from health import classify, shipped
from health.catalogue.driver import version
from health.events import (
    Ending,
    Event,
    JobEnded,
    PciAddress,
    Quantity,
    Reading,
    Source,
    SXid,
    Xid,
)
from health.fold.history import History
from health.parse import lines
from health.policy import yaml_text
from health.policy.schema import Policy
from health.verdict.node import NodeVerdict, judge_node
from health.verdict.topology import Topology

START = 10_000_000.0
GPUS = tuple(PciAddress(0, bus, 0) for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF))
GPU, PEER = GPUS[0], GPUS[1]


def event(
    at: float, what: Any, boot: str = "b1", source: Source = Source.KMSG, **more: Any
) -> Event:
    return Event(START + at, what, boot, source, text=more.pop("text", ""), **more)


def xid(at: float, code: int, message: str = "", device: PciAddress = GPU, **more: Any) -> Event:
    return event(at, Xid(device, code, message), text=f"Xid {code} {message}", **more)


def recovery(at: float, before: int, now: int, device: PciAddress = GPU, **more: Any) -> Event:
    words = f"GPU recovery action changed from 0x{before:x} (x) to 0x{now:x} (y)"
    return xid(at, 154, words, device, **more)


def said(at: float, line: str, **more: Any) -> Event:
    """The event of a line as it stands in a log."""
    what = lines.line(line).what
    assert what is not None, line
    return event(at, what, text=line, **more)


def switch(at: float, code: int, **fields: Any) -> Event:
    more = {name: fields.pop(name) for name in ("boot", "source") if name in fields}
    return event(at, SXid(fields.pop("device", PciAddress(0, 5, 0)), code, **fields), **more)


def reading(
    at: float, quantity: Quantity, value: int | None, device: PciAddress | None = GPU, **more: Any
) -> Event:
    return event(at, Reading(quantity, value, device), source=Source.NVML, **more)


def ended(at: float, job: str, how: Ending, device: PciAddress = GPU, **more: Any) -> Event:
    return event(at, JobEnded(job, how, (device,)), source=Source.CLUSTER, **more)


def policy(text: str = "") -> Policy:
    return yaml_text.policy(text, shipped.policy_text()) if text else shipped.policy()


def history(
    *events: Event,
    policy: Policy | None = None,
    driver: str | None = None,
    sources: frozenset[Source] = frozenset(),
    now: float | None = None,
) -> History:
    used = policy or shipped.policy()
    known = version(driver) if driver else None
    folded = History(classify.judge_for(shipped.catalogue(), known, used), used, sources)
    for each in events:
        folded.add(each)
    if now is not None:
        folded.advance(START + now)
    return folded


def verdict(*events: Event, topology: Topology | None = None, **more: Any) -> NodeVerdict:
    return judge_node(history(*events, **more), topology)
