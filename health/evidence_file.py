"""A decision with all that it was made from, as lines of JSON: it can be made again anywhere.

The first line names the format, driver, topology and policy; each further line is an event; the last
one is the decision. Text comes in and goes out; nothing here opens a file.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from health.actions import Action, Standing
from health.catalogue.driver import version
from health.catalogue.tables import Catalogue
from health.classify import judge_for
from health.events import Event, Source
from health.fold.history import History
from health.policy.schema import Policy
from health.verdict.node import NodeVerdict, judge_node
from health.verdict.topology import Topology

FORMAT = "clusterops.health.evidence/1"


class EvidenceError(Exception):
    """A file is no evidence, or of a format that this version does not know."""


class Header(msgspec.Struct, frozen=True):
    """What a decision depends on besides the events."""

    format: str
    policy: Policy
    now: float
    driver: str | None = None
    topology: Topology = Topology()
    sources: tuple[Source, ...] = ()


class Decided(msgspec.Struct, frozen=True):
    """One incident's decision."""

    id: str
    action: Action
    rule: str
    open: bool


class Decision(msgspec.Struct, frozen=True, tag="decision"):
    """What was decided, in short: enough to see whether it is decided again."""

    standing: Standing
    action: Action
    rule: str
    incidents: tuple[Decided, ...]


class Recorded(NamedTuple):
    """A file of evidence, read."""

    header: Header
    events: list[Event]
    decision: Decision | None


def decision(verdict: NodeVerdict) -> Decision:
    """A verdict in short."""
    decided = tuple(
        Decided(each.id, each.action, each.rule, each.closed is None) for each in verdict.incidents
    )
    return Decision(verdict.standing, verdict.action, verdict.rule, decided)


def written(header: Header, events: Iterable[Event], made: Decision) -> Iterator[bytes]:
    """The lines of a file of evidence, without line ends."""
    encode = msgspec.json.encode
    yield encode(header)
    for event in events:
        yield encode(event)
    yield encode(made)


def is_evidence(first_line: str) -> bool:
    """Whether a file that begins so is one of evidence, and not a log."""
    return FORMAT.rpartition("/")[0] in first_line[:200] and first_line.startswith("{")


def read(lines: Iterable[str]) -> Recorded:
    """Reads a file of evidence.

    Raises:
        EvidenceError: a line is broken, or the format is another one.
    """
    header: Header | None = None
    events: list[Event] = []
    made: Decision | None = None
    event, decided = msgspec.json.Decoder(Event), msgspec.json.Decoder(Decision)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = msgspec.json.decode(line, type=Header)
            elif line.startswith('{"type":"decision"'):
                made = decided.decode(line)
            else:
                events.append(event.decode(line))
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise EvidenceError(f"line {number}: {error}") from error
    if header is None or header.format != FORMAT:
        found = header.format if header is not None else "nothing"
        raise EvidenceError(f"this is {found}, expected {FORMAT}")
    return Recorded(header, events, made)


def decide_again(
    recorded: Recorded, catalogue: Catalogue, policy: Policy | None = None
) -> NodeVerdict:
    """The verdict on recorded events, by the recorded policy or by another one."""
    header = recorded.header
    used = policy or header.policy
    driver = version(header.driver) if header.driver else None
    history = History(judge_for(catalogue, driver, used), used, frozenset(header.sources))
    for event in recorded.events:
        history.add(event)
    history.advance(header.now)
    return judge_node(history, header.topology)


def differences(before: Decision, after: Decision) -> list[str]:
    """What was decided otherwise, in words; empty when all is the same."""
    said = []
    if (before.standing, before.action) != (after.standing, after.action):
        said.append(f"node: {before.standing} ({before.rule}) -> {after.standing} ({after.rule})")
    one = {each.id: each for each in before.incidents}
    other = {each.id: each for each in after.incidents}
    for name in [*one, *(each for each in other if each not in one)]:
        was, now = one.get(name), other.get(name)
        if was == now:
            continue
        said.append(f"{name}: {_words(was)} -> {_words(now)}")
    return said


def _words(decided: Decided | None) -> str:
    if decided is None:
        return "no incident"
    return f"{decided.action} ({decided.rule}){'' if decided.open else ', ended'}"
