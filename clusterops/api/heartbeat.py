"""What a job's process and the operator say to each other, in both directions.

`POST $CLUSTEROPS_AGENT_URL/v1/heartbeat` with a `Heartbeat`, answered by an `Answer`. JSON in
camelCase; unknown fields are ignored, missing optional ones take their defaults, so that both
neighbouring versions of either side understand each other. Times are seconds remaining, never wall
time: the two clocks need not agree. 409 = a newer attempt exists, stop without committing; 401 =
wrong token; 503 with Retry-After = this operator is not the leader. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

PATH = "/v1/heartbeat"
PROBLEM_LIMIT = 500
"""Characters of `Heartbeat.problem` that are sent and taken."""

T = TypeVar("T")


class MalformedHeartbeat(ValueError):
    """A message lacks a field or has one of the wrong type; the text names it."""


@dataclass(frozen=True, slots=True)
class Durable:
    """The newest checkpoint that is safely on disk. `manifest_sha256` is 64 hex digits, or empty
    for a checkpoint of the user's own format.
    """

    step: int
    manifest_sha256: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One rank's report. `step` counts completed optimizer steps; `finished` = all work is done;
    `problem` says what is wrong although training goes on (saves that fail), empty when nothing is.
    """

    attempt: int
    rank: int
    step: int
    total_steps: int | None = None
    durable: Durable | None = None
    finished: bool = False
    problem: str = ""

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that is posted."""
        durable = self.durable and {
            "step": self.durable.step,
            "manifestSha256": self.durable.manifest_sha256,
        }
        return {
            "attempt": self.attempt,
            "rank": self.rank,
            "step": self.step,
            "totalSteps": self.total_steps,
            "durable": durable,
            "finished": self.finished,
            "problem": self.problem[:PROBLEM_LIMIT],
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Heartbeat":
        """Reads a posted object.

        Raises:
            MalformedHeartbeat: a required field is missing, or a field has a wrong type.
        """
        durable = _optional(wire, "durable", dict)
        return cls(
            attempt=_required_count(wire, "attempt"),
            rank=_required_count(wire, "rank"),
            step=_required_count(wire, "step"),
            total_steps=_optional_count(wire, "totalSteps"),
            durable=None
            if durable is None
            else Durable(
                step=_required_count(durable, "step"),
                manifest_sha256=_optional(durable, "manifestSha256", str) or "",
            ),
            finished=bool(_optional(wire, "finished", bool)),
            problem=(_optional(wire, "problem", str) or "")[:PROBLEM_LIMIT],
        )


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """The operator asks for a checkpoint. The same `id` is the same request, however often it is
    repeated. `then_exit` False = save and go on training; True = save and leave.
    """

    id: str
    reason: str
    remaining_seconds: float
    then_exit: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What the operator answers: when to report next, and whether to save now."""

    interval_seconds: float
    save: SaveRequest | None = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that is answered."""
        save = self.save and {
            "id": self.save.id,
            "reason": self.save.reason,
            "remainingSeconds": self.save.remaining_seconds,
            "thenExit": self.save.then_exit,
        }
        return {"intervalSeconds": self.interval_seconds, "save": save}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Answer":
        """Reads an answered object.

        Raises:
            MalformedHeartbeat: a required field is missing, or a field has a wrong type.
        """
        save = _optional(wire, "save", dict)
        return cls(
            interval_seconds=_required_seconds(wire, "intervalSeconds"),
            save=None
            if save is None
            else SaveRequest(
                id=_optional(save, "id", str) or "",
                reason=_optional(save, "reason", str) or "",
                remaining_seconds=_required_seconds(save, "remainingSeconds"),
                then_exit=bool(_optional(save, "thenExit", bool)),
            ),
        )


def _optional(wire: Mapping[str, Any], field: str, kind: type[T]) -> T | None:
    value = wire.get(field)
    if value is not None and not isinstance(value, kind):
        raise MalformedHeartbeat(f"{field} must be {kind.__name__}, not {type(value).__name__}")
    return value


def _optional_count(wire: Mapping[str, Any], field: str) -> int | None:
    value = _optional(wire, field, int)
    if isinstance(value, bool) or (value is not None and value < 0):
        raise MalformedHeartbeat(f"{field} must be a number from 0, not {value}")
    return value


def _required_count(wire: Mapping[str, Any], field: str) -> int:
    value = _optional_count(wire, field)
    if value is None:
        raise MalformedHeartbeat(f"{field} is missing")
    return value


def _required_seconds(wire: Mapping[str, Any], field: str) -> float:
    value = wire.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise MalformedHeartbeat(f"{field} must be seconds from 0, not {value!r}")
    return float(value)
