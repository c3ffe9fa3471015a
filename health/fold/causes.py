"""Which observation explains which: by the rules of the policy, over time and devices."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from health.fold.incident import Observation, is_fault
from health.policy.schema import CauseRule, CodeSet, Where


class Explained(NamedTuple):
    """What explains an observation, and the rule that says so."""

    by: Observation
    rule: CauseRule


class Causes:
    """The rules, prepared for many questions."""

    def __init__(self, rules: Iterable[CauseRule]) -> None:
        self._rules = [(rule, CodeSet(rule.effects), CodeSet(rule.causes)) for rule in rules]
        self._by_code: dict[str, list[tuple[CauseRule, CodeSet]]] = {}

    def explaining(self, code: str) -> list[tuple[CauseRule, CodeSet]]:
        """The rules for an effect, with the codes of its causes."""
        found = self._by_code.get(code)
        if found is None:
            found = [(rule, causes) for rule, effects, causes in self._rules if code in effects]
            self._by_code[code] = found
        return found

    def explain(
        self, effect: Observation, by_code: Mapping[str, list[Observation]]
    ) -> Explained | None:
        """The earliest cause of an observation, None when nothing explains it.

        `by_code` holds the observations of the node by code; only what happened near is looked at.
        """
        code = effect.judgement.code
        named = effect.judgement.variant if effect.judgement.rule == "caused_by_another" else ""
        for rule, causes in self.explaining(code):
            candidates = [
                cause
                for other, observations in by_code.items()
                if other != code and other in causes
                for cause in observations
                if is_fault(cause) and _fits(effect, cause, rule)
            ]
            if candidates:
                candidates.sort(key=lambda each: (each.judgement.code != named, each.first_at))
                return Explained(candidates[0], rule)
        return None

    def across(self, code: str, other: str, gap_seconds: float) -> bool:
        """Whether a fault can belong to one that another device told `gap_seconds` ago.

        Either may be the cause: a switch may tell the loss of a GPU before the GPU's driver does.
        """
        return any(
            other in causes
            and rule.where is not Where.SAME_GPU
            and gap_seconds <= rule.within_seconds
            for rule, causes in self.explaining(code)
        ) or any(
            code in causes
            and rule.where is not Where.SAME_GPU
            and gap_seconds <= rule.ahead_seconds
            for rule, causes in self.explaining(other)
        )

    @property
    def reach_seconds(self) -> float:
        """No cause is further away from its effect than this."""
        return max((rule.within_seconds for rule, _, _ in self._rules), default=0.0)


def _fits(effect: Observation, cause: Observation, rule: CauseRule) -> bool:
    if cause.boot != effect.boot:
        return False
    if rule.where is Where.SAME_GPU and cause.device != effect.device:
        return False
    if rule.where is Where.OTHER_DEVICE and cause.device == effect.device:
        return False
    return any(
        cause_run.first - rule.ahead_seconds <= run.first
        and run.first <= cause_run.last + rule.within_seconds
        for run in effect.runs
        for cause_run in cause.runs
    )
