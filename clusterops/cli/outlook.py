"""What would become of a job if it were submitted now: pure, from the queues as they are.

Says what is known (it fits, who would make room, who is ahead, who holds what is missing), gives a
time only where running jobs report how far they are, and names what it cannot know.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from clusterops.api.text import listed
from clusterops.cli import jobs
from clusterops.cli.output import counted, duration
from clusterops.scheduling import explain as scheduling
from clusterops.scheduling import quantities
from clusterops.scheduling.explain import Holding, Shortage
from clusterops.scheduling.objects import Workload
from clusterops.scheduling.prediction import forecast
from clusterops.scheduling.snapshot import Snapshot

Json = Mapping[str, Any]

_UNKNOWN = (
    "not known: what is submitted meanwhile, what fails, whether its pods find room on the nodes"
)


class Ending(NamedTuple):
    """When a holder may give back what it holds, by its own report; `seconds` None: it says none.
    `reports`: it has said how far it is, and of how many steps.
    """

    name: str
    amount: int
    seconds: float | None
    reports: bool = False


def outlook(view: Snapshot, workload: Workload, running: Sequence[Json], now: float) -> list[str]:
    """Lines about a workload that is in no queue yet. `running` are the jobs that may be seen."""
    ready = msgspec.structs.replace(workload, created=now)
    found = forecast(view, ready, now)
    if found.admitted:
        return ["it would get its quota at once", _UNKNOWN]
    if found.victims:
        victims = listed([jobs.behind(each.victim.name) for each in found.victims], "and")
        return [f"it would begin in the place of {victims}, after their last save", _UNKNOWN]
    world = msgspec.structs.replace(view, pending={**view.pending, ready.uid: ready})
    why = scheduling.explain(world, ready, now)
    lines = [f"it would wait: {why.sentence}"]
    if why.position:
        lines.append(f"{counted(why.position, 'job')} would be ahead of it")
    if why.shortages:
        endings = endings_of(why.holders, running)
        lines.append(earliest(why.shortages[0], endings, ahead=why.position or 0))
    return [*lines, _UNKNOWN]


def earliest(short: Shortage, holders: Sequence[Ending], *, ahead: int = 0) -> str:
    """When what is missing may be free at the earliest, if the holders go on as they report."""
    missing = short.asked - max(short.free, 0)
    known = sorted(
        (each for each in holders if each.seconds is not None), key=lambda each: each.seconds or 0.0
    )
    freed, needed = 0, []
    for each in known:
        needed.append(each)
        freed += each.amount
        if freed >= missing:
            break
    if freed < missing:
        what = f"{quantities.show(short.resource, missing)} more {short.resource}"
        return f"no time can be told: {_silence(holders) or f'{what} must become free'}"
    last = needed[-1]
    others = f", if the {counted(ahead, 'job')} ahead leave it any" if ahead else ""
    own = f"{last.name} ends by its own report{others}"
    left = last.seconds or 0.0
    return (
        f"any moment, when {own}"
        if left < 1
        else f"not before {duration(left)} from now, when {own}"
    )


def _silence(holders: Sequence[Ending]) -> str:
    """Whose end cannot be told, and for want of what; one that just began has not said it yet."""
    silent = sorted(each.name for each in holders if each.seconds is None and not each.reports)
    new = sorted(each.name for each in holders if each.seconds is None and each.reports)
    parts = []
    if silent:
        words = (
            "has not said how far it is" if len(silent) == 1 else "have not said how far they are"
        )
        parts.append(f"{listed(silent, 'and')} {words}")
    if new:
        words = (
            "has not said yet how fast it is"
            if len(new) == 1
            else "have not said yet how fast they are"
        )
        parts.append(f"{listed(new, 'and')} {words}")
    return "; ".join(parts)


def seconds_left(job: Json) -> float | None:
    """How long a running job says it still needs; None when it does not say."""
    progress = (job.get("status") or {}).get("progress") or {}
    total, step, rate = (progress.get(key) for key in ("totalSteps", "step", "stepsPerSecond"))
    if not total or step is None or not rate or rate <= 0:
        return None
    return float(max(0.0, (total - step) / rate))


def endings_of(holders: Iterable[Holding], running: Sequence[Json]) -> list[Ending]:
    """When each holder ends by its own report, as far as its job may be seen and says so."""
    seen = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in running}
    endings = []
    for each in holders:
        name = jobs.behind(each.name)
        job = seen.get((each.namespace, name), {})
        endings.append(Ending(name, each.amount, seconds_left(job), _reports(job)))
    return endings


def _reports(job: Json) -> bool:
    progress = (job.get("status") or {}).get("progress") or {}
    return progress.get("step") is not None and bool(progress.get("totalSteps"))
