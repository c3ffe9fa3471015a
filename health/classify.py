"""A log from its lines to verdicts: line by line, or folded into incidents. Pure: lines come in.

The shell and the command line share this; tests and the benchmark call it too.
"""

import json
from collections.abc import Iterable, Iterator

import msgspec

from health.actions import Action
from health.catalogue.driver import DriverVersion
from health.catalogue.tables import Catalogue
from health.events import Event, FallenOff, RecordsLost, Source, SXid, SXidDetail, Xid
from health.fold.history import History
from health.judge.judge import Judge
from health.parse import lines, stamps
from health.parse.lines import Line, Unused
from health.parse.records import records
from health.policy.schema import Policy

LOST_GPU_XID = 79


class LineVerdict(msgspec.Struct, frozen=True):
    """What one line calls for when nothing else is known. Its JSON is the format of --per-line."""

    line: int
    kind: str
    code: int | None
    gpu: str | None
    action: Action
    rule: str
    why: str


def judge_for(catalogue: Catalogue, driver: DriverVersion | None, policy: Policy) -> Judge:
    """The judge of one catalogue, driver and policy."""
    overrides = {override.code: override for override in policy.overrides}
    return Judge(catalogue, driver, policy.limits, overrides)


def per_line(raw_lines: Iterable[str], judge: Judge) -> Iterator[LineVerdict]:
    """Each input line judged alone, in order. A line that is a JSON string is one record."""
    for number, raw in enumerate(raw_lines, start=1):
        yield line_verdict(number, lines.line(record_text(raw)), judge)


def record_text(raw: str) -> str:
    """The record that an input line holds: itself, the string that it is in JSON, or the message of
    the entry that `journalctl -o json` exported.
    """
    if raw[:1] == "{":
        return _exported(raw) or raw
    if raw[:1] == '"':
        try:
            decoded = json.loads(raw)
        except (ValueError, RecursionError):
            return raw
        return decoded if isinstance(decoded, str) else raw
    return raw


def _exported(raw: str) -> str | None:
    """The kernel's message in an entry of the journal, behind its stamp; None for any other object."""
    if '"_TRANSPORT"' not in raw:
        return None
    try:
        fields = json.loads(raw)
        message = fields.get("MESSAGE")
        # A list of bytes when the journal took the message for none of UTF-8.
        text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else message
    except (ValueError, TypeError, RecursionError):
        return None
    if fields.get("_TRANSPORT") != "kernel" or not isinstance(text, str):
        return None
    at = fields.get("_SOURCE_MONOTONIC_TIMESTAMP") or fields.get("__MONOTONIC_TIMESTAMP")
    if not (isinstance(at, str) and at.isascii() and at.isdigit() and len(at) < 19):
        return text
    return f"[{int(at) // 1_000_000}.{int(at) % 1_000_000:06d}] {text}"


def line_verdict(number: int, line: Line, judge: Judge) -> LineVerdict:
    """The verdict on one parsed line."""
    what = line.what
    judgement = judge.judge(what) if what is not None else None
    kind, code = kind_of(what)
    device = getattr(what, "device", None)
    if judgement is None:
        rule, why = ("identity", "says which board this is") if what else _UNUSED[line.unused]
    else:
        rule, why = judgement.rule, judgement.why
    return LineVerdict(
        line=number,
        kind=kind,
        code=code,
        gpu=str(device) if device is not None else None,
        action=judgement.action if judgement is not None else Action.NONE,
        rule=rule,
        why=why,
    )


def kind_of(what: object) -> tuple[str, int | None]:
    """The kind of a line and its code."""
    if isinstance(what, Xid):
        return "xid", what.code
    if isinstance(what, SXid | SXidDetail):
        return "sxid", what.code
    if isinstance(what, FallenOff):
        return "bus", LOST_GPU_XID
    return "none", None


_UNUSED: dict[Unused | None, tuple[str, str]] = {
    Unused.NOT_A_DRIVER_LINE: ("not_a_driver_line", "not a line of the GPU or switch driver"),
    Unused.DRIVER_MESSAGE: ("driver_message", "a message of the driver that tells no fault"),
    Unused.NOT_FROM_KERNEL: ("not_from_kernel", "quotes the driver; the kernel did not write it"),
    Unused.MALFORMED: ("malformed", "begins like a fault report and does not go on like one"),
    None: ("identity", "says which board this is"),
}


def events(raw_lines: Iterable[str], history_counts: dict[str, int]) -> Iterator[Event]:
    """The events of a log, placed on one line of time. Lines without one are counted by reason."""
    timeline = stamps.Timeline()
    boot, boot_name = 0, "boot-0"
    for record in records(map(record_text, raw_lines)):
        line = lines.line(record.text)
        if line.cut:
            history_counts["cut"] = history_counts.get("cut", 0) + 1
        if line.what is None:
            reason = str(line.unused)
            history_counts[reason] = history_counts.get(reason, 0) + 1
            if line.unused is Unused.NOT_A_DRIVER_LINE:
                continue
        stamp = stamps.stamp(line.head)
        at = timeline.place(stamp)
        begins = timeline.boot != boot
        if begins:
            boot, boot_name = timeline.boot, f"boot-{timeline.boot}"
        if line.what is None:
            if begins:
                # A reboot ends what only needed one, even if the driver then tells no fault.
                yield Event(at, RecordsLost(0), boot_name)
            continue
        uptime = None if stamp.uptime is None else int(stamp.uptime * 1e6)
        sequence = stamp.sequence if stamp.sequence is not None else record.number
        yield Event(at, line.what, boot_name, Source.REPLAY, sequence, uptime, record.text)


def folded(raw_lines: Iterable[str], judge: Judge, policy: Policy) -> History:
    """A log folded into the history of its node."""
    history = History(judge, policy)
    for event in events(raw_lines, history.counts):
        history.add(event)
    return history
