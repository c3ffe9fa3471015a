"""Standard conditions as values: set one, keep the rest, move the time only when the state moves."""

from datetime import datetime

from clusterops.core.observed_object import Condition


def with_condition(
    conditions: tuple[Condition, ...],
    kind: str,
    true: bool,
    reason: str,
    message: str,
    now: datetime,
    generation: int,
) -> tuple[Condition, ...]:
    """The conditions with one set. lastTransitionTime changes only when True becomes False or back."""
    status = "True" if true else "False"
    before = next((found for found in conditions if found.type == kind), None)
    since = before.last_transition_time if before is not None else None
    if before is None or before.status != status or since is None:
        since = now.replace(microsecond=0)
    after = Condition(kind, status, reason, message, since, generation)
    if before is None:
        return (*conditions, after)
    return tuple(after if found.type == kind else found for found in conditions)


def without_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """The conditions without one type."""
    return tuple(found for found in conditions if found.type != kind)


def seconds_since(moment: datetime | None, now: datetime) -> float:
    """Seconds from `moment` to `now`; 0 when unknown or in the future."""
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())


def to_milliseconds(moment: datetime) -> datetime:
    """The moment without the digits that no reader wants to see."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
