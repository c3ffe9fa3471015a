"""What one Xid calls for by itself: the driver's own number, the tag in the line, the catalogue.

In this order; what the site decided otherwise is laid over it by `health.judge.judge`.
"""

from collections.abc import Callable

from msgspec.structs import replace

from health.actions import Action, Drain
from health.catalogue import nvlink5
from health.catalogue.driver import DriverVersion
from health.catalogue.rows import Blame, Cause, Decode, Resolution, XidRow
from health.catalogue.tables import Catalogue
from health.events import Severity, Xid
from health.judge.judgement import Judgement
from health.judge.registers import judge_registers
from health.parse import details

MAX_REMEMBERED = 4096

Decoder = Callable[[Xid, XidRow], Judgement]


class Xids:
    """Judges Xids. Most codes need no look at the message: their judgement is made once."""

    def __init__(self, catalogue: Catalogue, driver: DriverVersion | None) -> None:
        self._catalogue = catalogue
        self._driver = driver
        self._decoders: dict[Decode, Decoder] = {
            Decode.RECOVERY_ACTION: self._recovery_action,
            Decode.NVLINK5: self._nvlink5,
            Decode.REGISTERS: self._registers,
            Decode.RETIREMENT: self._retirement,
            Decode.CAUSED_BY: self._caused_by,
        }
        self._plain = {
            row.code: self._by_catalogue(row)
            for row in catalogue.xids.values()
            if row.decode is Decode.NONE and row.code != 13
        }
        self._places: dict[str, Judgement] = {}
        self._mmu_faults: dict[str, Judgement] = {}
        self._decoded: dict[tuple[int, str], Judgement] = {}
        self._teardown = self._by_catalogue_of(45, "teardown")

    def judge(self, xid: Xid) -> Judgement:
        """What the Xid calls for by itself."""
        plain = self._plain.get(xid.code)
        if plain is not None:
            return plain
        row = self._catalogue.xids.get(xid.code)
        if row is None:
            return _unknown(xid.code)
        if row.code == 13:
            return self._with_place(xid, row)
        if row.decode is Decode.MMU_FAULT:
            return self._mmu_fault(xid, row)
        if row.decode is Decode.CAUSED_BY and "caused by" not in xid.message and self._teardown:
            return self._teardown
        return self._remembered(xid, row)

    def speaks_about(self, row: XidRow) -> bool:
        """Whether the driver's recovery action covers this Xid."""
        if row.recovery_since is None:
            return False
        return self._driver is None or self._driver >= row.recovery_since

    def _remembered(self, xid: Xid, row: XidRow) -> Judgement:
        """In a burst the same message comes again and again: it is decoded once."""
        key = (xid.code, xid.message)
        found = self._decoded.get(key)
        if found is None:
            if len(self._decoded) >= MAX_REMEMBERED:
                self._decoded.clear()
            found = self._decoded[key] = self._decoders[row.decode](xid, row)
        return found

    def _by_catalogue_of(self, code: int, rule: str) -> Judgement | None:
        row = self._catalogue.xids.get(code)
        return replace(self._by_catalogue(row), rule=rule) if row is not None else None

    def _by_catalogue(self, row: XidRow) -> Judgement:
        return Judgement(
            code=f"xid:{row.code}",
            action=row.action,
            rule="unsettled_code" if row.cause is Cause.RETIRED else "catalogue",
            why=_sentence(row),
            cause=row.cause,
            drain=row.drain,
            follows_driver=self.speaks_about(row),
            watched=row.cause not in (Cause.INFORMATION, Cause.SECONDARY, Cause.DETAIL),
        )

    def _with_place(self, xid: Xid, row: XidRow) -> Judgement:
        place = details.place(xid.message)
        found = self._places.get(place)
        if found is None:
            found = replace(self._by_catalogue(row), place=place)
            if len(self._places) < MAX_REMEMBERED:
                self._places[place] = found
        return found

    def _recovery_action(self, xid: Xid, row: XidRow) -> Judgement:
        change = details.recovery_change(xid.message)
        known = self._catalogue.recovery_actions.get(change.now) if change is not None else None
        judgement = self._by_catalogue(row)
        if change is None:
            return replace(judgement, rule="recovery_number_missing",
                           why="Xid 154 without its number: its words are not relied on")  # fmt: skip
        if known is None:
            return replace(judgement, rule="recovery_number_unknown", variant=str(change.now),
                           why=f"the driver wants recovery action {change.now}, which is not known")  # fmt: skip
        note = f": {known.note[0].lower()}{known.note[1:]}" if known.note else ""
        return replace(
            judgement,
            action=known.action,
            rule="recovery_number",
            why=f"the driver itself wants recovery action {known.code} ({known.name}){note}",
            variant=str(known.code),
            drain=known.drain,
            by_number=True,
            follows_driver=True,
            watched=known.code != 0,
        )

    def _nvlink5(self, xid: Xid, row: XidRow) -> Judgement:
        report = details.nvlink_report(xid.message)
        place = f"link {report.link}" if report.link is not None else ""
        # A link that is lost for good waits until its jobs have gone; a fatal fault of the GPU does not.
        link_alone = report.severity is Severity.LINK_FATAL
        drain = Drain.GPU if link_alone else Drain.NONE
        base = replace(self._by_catalogue(row), place=place, drain=drain)
        found = nvlink5.decode(self._catalogue.nvlink5.get(xid.code, ()), report, self._driver)
        if found is not None and (found.raised or nvlink5.agrees(found.row, report.severity)):
            return self._by_sheet(base, report, found)
        if report.severity is not None:
            fatal = report.severity.fatal
            shown = report.severity.value.replace("_", " ")
            return replace(
                base,
                action=Action.RESET_GPU if fatal else Action.NONE,
                rule="severity_tag",
                why=f"Xid {xid.code}: the driver tags this {report.unit or 'NVLink'} fault {shown}",
            )
        return base

    def _by_sheet(
        self, base: Judgement, report: details.NvlinkReport, found: nvlink5.Decoded
    ) -> Judgement:
        cause = nvlink5.sub_cause(report)
        about = f"unit {report.unit}, sub cause 0x{cause:02x}, layout {found.layout}"
        waits = found.resolution is Resolution.WAIT
        says = {
            Resolution.NONE: "to be ignored",
            Resolution.RESET_GPU: "a reset of the GPU",
            Resolution.WAIT: "the recovery action that follows decides",
        }[found.resolution]
        return replace(
            base,
            action=Action.RESET_GPU if found.resolution is Resolution.RESET_GPU else Action.NONE,
            rule="nvlink5_wait_for_154" if waits else "nvlink5_sheet",
            why=f"{base.code.replace('xid:', 'Xid ')}: {about}: {says}",
            variant=found.row.blame.value,
            ticket_allowed=found.row.blame not in _ELSEWHERE,
        )

    def _registers(self, xid: Xid, row: XidRow) -> Judgement:
        return judge_registers(self._by_catalogue(row), details.link_registers(xid.message))

    def _retirement(self, xid: Xid, row: XidRow) -> Judgement:
        base = self._by_catalogue(row)
        if details.spares_exhausted(xid.message):
            return replace(base, action=Action.HARDWARE_TICKET, rule="spares_exhausted",
                           variant="exhausted",
                           why=f"Xid {xid.code}: no spare memory is left to replace the bad rows")  # fmt: skip
        if details.retirement_pending(xid.message):
            return replace(
                base,
                action=Action.RESET_GPU,
                drain=Drain.GPU,
                rule="retirement_pending",
                variant="pending",
                why=f"Xid {xid.code}: bad memory is replaced at the next reset",
            )
        return base

    def _mmu_fault(self, xid: Xid, row: XidRow) -> Judgement:
        variant = "unattributed" if details.unattributed(xid.message) else ""
        found = self._mmu_faults.get(variant)
        if found is None:
            found = replace(self._by_catalogue(row), variant=variant)
            self._mmu_faults[variant] = found
        return found

    def _caused_by(self, xid: Xid, row: XidRow) -> Judgement:
        root = details.caused_by(xid.message)
        base = self._by_catalogue(row)
        if root is None:
            return replace(base, rule="teardown")
        return replace(base, rule="caused_by_another", variant=f"xid:{root}",
                       why=f"Xid 45 as a consequence of Xid {root}, which decides")  # fmt: skip


_ELSEWHERE = (Blame.PEER, Blame.USER, Blame.HOST)


def _sentence(row: XidRow) -> str:
    return f"Xid {row.code}: {row.meaning[0].lower()}{row.meaning[1:]}"


def _unknown(code: int) -> Judgement:
    return Judgement(
        code=f"xid:{code}",
        action=Action.NONE,
        rule="unknown_code",
        why=f"Xid {code} is not in the catalogue: counted and watched",
        cause=Cause.RETIRED,
    )
