"""What one observation calls for, taken alone: the same for a line, a switch report or a reading.

The driver's number comes first, then the tag in the line, then the catalogue; a decision of the site
is laid over the last two. The same observation always gets the same judgement.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from health.actions import Action
from health.catalogue import sxids
from health.catalogue.driver import DriverVersion
from health.catalogue.rows import Cause, SXidSeverity
from health.catalogue.tables import Catalogue
from health.events import FallenOff, Fault, Hint, PciAddress, Reading, SXid, SXidDetail, Xid
from health.judge import readings
from health.judge.judgement import Judgement
from health.judge.xids import Xids
from health.policy.schema import Limits, Override

_NOWHERE = PciAddress(0, 0, 0)


class Judge:
    """Judges observations by one catalogue, one driver version and one site's decisions.

    A driver version of None means unknown: what depends on it is then left open rather than guessed.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        driver: DriverVersion | None,
        limits: Limits,
        overrides: Mapping[str, Override],
    ) -> None:
        self._catalogue = catalogue
        self._driver = driver
        self._limits = limits
        self._overrides = dict(overrides)
        self._xids = Xids(catalogue, driver)
        self._lost = self._xids.judge(Xid(_NOWHERE, 79))

    def judge(self, what: Fault | Reading) -> Judgement | None:
        """What an observation calls for by itself; None when it is no fault but a fact to keep."""
        if type(what) is Xid:
            found: Judgement | None = self._xids.judge(what)
        elif isinstance(what, SXid):
            found = self._sxid(what)
        elif isinstance(what, SXidDetail):
            found = _detail(what)
        elif isinstance(what, FallenOff):
            found = replace(self._lost, rule="fallen_off_bus",
                            why="the GPU has fallen off the bus, which is Xid 79")  # fmt: skip
        elif isinstance(what, Reading):
            found = readings.judge(what, self._catalogue, self._limits)
        else:
            found = _hint(what) if isinstance(what, Hint) else None
        if found is None or not self._overrides:
            return found
        return self._decided_here(found)

    def _decided_here(self, found: Judgement) -> Judgement:
        override = self._overrides.get(found.code)
        if override is None or found.by_number:
            return found
        return replace(found, action=override.action, rule="site_override",
                       why=f"{found.why}; decided here: {override.reason}")  # fmt: skip

    def _sxid(self, sxid: SXid) -> Judgement:
        row, how = sxids.meaning(self._catalogue.sxids, sxid.code, sxid.text, self._driver)
        named = f"SXid {sxid.code}" + (f" ({row.name})" if row is not None else "")
        base = Judgement(
            code=f"sxid:{sxid.code}",
            action=Action.NONE,
            rule="unknown_code",
            why=f"{named} is not in the catalogue: counted and watched",
            cause=Cause.LINK,
            place=f"link {sxid.link}" if sxid.link is not None else "",
            watched=row is None or row.watch,
        )
        if sxid.severity is not None:
            action = Action.REBOOT_NODE if sxid.severity.fatal else Action.NONE
            shown = sxid.severity.value.replace("_", "-")
            why = f"{named}: the driver tags it {shown}"
            return replace(base, action=action, rule="severity_tag", why=why)
        if sxid.cut:
            why = f"{named}: the line ends before the tag that tells how grave it is"
            return replace(base, rule="severity_tag_missing", why=why)
        if row is None and how == "ambiguous":
            why = f"{named} means different faults in different drivers: its text or --driver tells"
            return replace(base, rule="ambiguous_code", why=why)
        if row is None:
            return base
        if row.severity is SXidSeverity.BY_LINE:
            why = f"{named}: only a tag tells how grave it is, and the line has none"
            return replace(base, rule="severity_tag_missing", why=why)
        why = f"{named}, told by its {how}" + (f": {row.note}" if row.note else "")
        return replace(base, action=row.action, rule="catalogue", why=why)


def _detail(detail: SXidDetail) -> Judgement:
    return Judgement(
        code=f"sxid:{detail.code}",
        action=Action.NONE,
        rule="sxid_detail",
        why="a further line of the switch report before it",
        cause=Cause.DETAIL,
        watched=False,
    )


def _hint(hint: Hint) -> Judgement:
    return Judgement(
        code=f"hint:{hint.name}",
        action=Action.NONE,
        rule="early_warning",
        why=f"{hint.name.replace('_', ' ')}: a warning without an Xid",
        cause=Cause.INFORMATION,
    )
