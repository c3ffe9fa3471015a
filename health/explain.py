"""Why a line or a code is judged as it is: what was read, the rule, and what would change it."""

import re
from typing import NamedTuple

from health.catalogue import sxids
from health.catalogue.driver import DriverVersion
from health.catalogue.rows import SXidRow
from health.catalogue.tables import Catalogue
from health.classify import judge_for, kind_of, line_verdict, record_text
from health.events import Fault, Identity, PciAddress, SXid, Xid
from health.judge.judgement import Judgement
from health.parse import details, lines
from health.policy.schema import CodeSet, Policy

_CODE = re.compile(r"\s*(s?xid)?[\s:]*(\d{1,5})\s*\Z", re.IGNORECASE | re.ASCII)
RECOVERY_XID = 154
NOWHERE = PciAddress(0, 0, 0)


class Point(NamedTuple):
    """One point of an explanation: what about, and what is to be said."""

    about: str
    says: str


def explain(
    asked: str, catalogue: Catalogue, policy: Policy, driver: DriverVersion | None
) -> list[Point]:
    """The points that explain a line, or a code given as `79`, `xid:79` or `sxid:20034`."""
    code = _CODE.match(asked)
    if code is None:
        return _line(asked, catalogue, policy, driver)
    number = int(code[2])
    if (code[1] or "").lower() == "sxid":
        what: Fault = SXid(NOWHERE, number)
        return [*_sxid(catalogue.sxids.get(number, ())), *_judged(what, catalogue, policy, driver)]
    what = Xid(NOWHERE, number)
    return [*_xid(number, catalogue), *_judged(what, catalogue, policy, driver)]


def _line(
    asked: str, catalogue: Catalogue, policy: Policy, driver: DriverVersion | None
) -> list[Point]:
    line = lines.line(record_text(asked.strip()))
    if line.what is None or isinstance(line.what, Identity):
        verdict = line_verdict(1, line, judge_for(catalogue, driver, policy))
        points = [Point("read as", verdict.why)]
        return [*points, Point("device", verdict.gpu)] if verdict.gpu else points
    what = line.what
    kind, code = kind_of(what)
    named = f"{kind} {code}" if code is not None else kind
    points = [Point("read as", named)]
    device = getattr(what, "device", None)
    if device is not None:
        points.append(Point("device", str(device)))
    if isinstance(what, Xid):
        points += _message(what, catalogue)
        points += _xid(what.code, catalogue)
    elif isinstance(what, SXid):
        points += _sxid(catalogue.sxids.get(what.code, ()))
        told = sxids.meaning(catalogue.sxids, what.code, what.text, driver)
        points.append(Point("meaning told by", told.how))
    return [*points, *_judged(what, catalogue, policy, driver)]


def _message(xid: Xid, catalogue: Catalogue) -> list[Point]:
    points = []
    if xid.process is not None or xid.pid is not None:
        who = f"{xid.process or 'process'} {xid.pid if xid.pid is not None else ''}".strip()
        points.append(
            Point("named process", f"{who}: it made the last call, which need not be the cause")
        )
    if xid.gpu_instance is not None:
        points.append(Point("MIG slice", f"GPU instance {xid.gpu_instance}: only it is concerned"))
    if xid.code == RECOVERY_XID:
        points += _recovery(xid, catalogue)
    if 144 <= xid.code <= 150:
        report = details.nvlink_report(xid.message)
        words = " ".join(f"0x{word:08x}" for word in report.words) or "cut off"
        tag = report.severity.value.replace("_", " ") if report.severity else "no tag"
        points.append(Point("NVLink report", f"unit {report.unit}, {tag}, words {words}"))
    return points


def _recovery(xid: Xid, catalogue: Catalogue) -> list[Point]:
    change = details.recovery_change(xid.message)
    known = catalogue.recovery_actions.get(change.now) if change is not None else None
    if known is None:
        return [Point("number", "missing or unknown: its words are not relied on")]
    words = [known.words and f"{known.words!r} up to R595", known.words_since_595_84 and f"{known.words_since_595_84!r} since 595.84"]  # fmt: skip
    called = ", ".join(filter(None, words)) or "nothing settled"
    return [Point("number", f"{known.code} ({known.name}), which drivers call {called}")]


def _xid(code: int, catalogue: Catalogue) -> list[Point]:
    row = catalogue.xids.get(code)
    if row is None:
        return [Point("catalogue", f"Xid {code} is not in it: counted and watched")]
    points = [
        Point("name", row.mnemonic),
        Point("meaning", row.meaning),
        Point("usual cause", row.cause.value),
    ]
    if row.note:
        points.append(Point("note", row.note))
    follows = (
        f"the driver's recovery action (Xid 154, NVML field 230) decides since R{row.recovery_since.major}"
        if row.recovery_since is not None
        else "the driver's recovery action says nothing about it"
    )
    return [*points, Point("recovery action", follows), Point("source", row.source)]


def _sxid(rows: tuple[SXidRow, ...]) -> list[Point]:
    points = []
    for row in rows:
        drivers = [
            f"since {row.since}" if row.since else "",
            f"before {row.until}" if row.until else "",
        ]
        when = " ".join(filter(None, drivers))
        meaning = f"{row.name}, {row.severity.value.replace('_', ' ')}" + (
            f" ({when})" if when else ""
        )
        points.append(Point("meaning", meaning + (f": {row.note}" if row.note else "")))
        points.append(Point("source", row.source))
    return points or [Point("catalogue", "not in it: counted and watched")]


def _judged(
    what: Fault, catalogue: Catalogue, policy: Policy, driver: DriverVersion | None
) -> list[Point]:
    judgement = judge_for(catalogue, driver, policy).judge(what)
    if judgement is None:
        return [Point("action", "none")]
    points = [
        Point("action", judgement.action.value),
        Point("rule", judgement.rule),
        Point("why", judgement.why),
    ]
    return [*points, *_surroundings(judgement, policy)]


def _surroundings(judgement: Judgement, policy: Policy) -> list[Point]:
    """What in the surroundings would change the judgement."""
    code = judgement.code
    points = []
    for rule in policy.causes:
        if code in CodeSet(rule.effects):
            causes = ", ".join(rule.causes)
            points.append(
                Point("explained by", f"{causes} within {rule.within_seconds:g} s ({rule.name})")
            )
    for each in policy.thresholds:
        if code not in CodeSet(each.codes) or each.action.severity <= judgement.action.severity:
            continue
        if each.variant and judgement.variant and each.variant != judgement.variant:
            continue
        points.append(
            Point(
                f"{each.action.value} when",
                f"{each.at_least} {each.counted} in {each.window_seconds:g} s: {each.why} ({each.name})",
            )
        )
    return points
