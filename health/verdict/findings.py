"""What each observation of a node means in its surroundings: expected, explained, repeated, or not."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from health.actions import Action
from health.catalogue.rows import Cause
from health.events import PciAddress
from health.fold.history import History
from health.fold.incident import Incident, Observation
from health.policy.schema import CodeSet, Counted, Scope, Threshold


class Role(StrEnum):
    """What an observation is within the history of its node."""

    FAULT = "fault"
    EXPLAINED = "explained"
    """The consequence of another fault, which decides."""
    EXPECTED = "expected"
    """A job's own end, or one that we caused."""
    DETAIL = "detail"


class Finding(msgspec.Struct, frozen=True):
    """One observation with what it calls for in its surroundings."""

    observation: Observation
    role: Role
    action: Action
    rule: str
    why: str
    explained_by: str = ""

    @property
    def code(self) -> str:
        return self.observation.judgement.code

    @property
    def device(self) -> PciAddress | None:
        return self.observation.device


class Surroundings:
    """A node's observations, arranged for questions across incidents."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._thresholds = [(each, CodeSet(each.codes)) for each in history.policy.thresholds]
        self.by_code: dict[str, list[Observation]] = {}
        self._home: dict[int, Incident] = {}
        self._base: dict[int, Finding] = {}
        for incident in history.incidents:
            for observation in incident.observations.values():
                self.by_code.setdefault(observation.judgement.code, []).append(observation)
                self._home[id(observation)] = incident

    def findings(self, incident: Incident) -> list[Finding]:
        """What each observation of an incident means."""
        return [self._finding(each) for each in incident.observations.values()]

    def _finding(self, observation: Observation) -> Finding:
        found = self._alone(observation)
        if found.role is not Role.FAULT:
            return found
        for threshold, codes in self._thresholds:
            if found.code not in codes or threshold.action.severity <= found.action.severity:
                continue
            if (
                threshold.action is Action.HARDWARE_TICKET
                and not observation.judgement.ticket_allowed
            ):
                continue
            reached = self._reached(threshold, codes, observation)
            if reached is not None:
                found = Finding(
                    observation, Role.FAULT, threshold.action, threshold.name,
                    f"{found.why}; {threshold.why} ({reached})",
                )  # fmt: skip
        return found

    def _alone(self, observation: Observation) -> Finding:
        """Role and action before repetition is looked at."""
        known = self._base.get(id(observation))
        if known is None:
            known = self._base[id(observation)] = self._role(observation)
        return known

    def _role(self, observation: Observation) -> Finding:
        judgement = observation.judgement
        quiet = Action.NONE
        if observation.simulated:
            return Finding(observation, Role.EXPECTED, quiet, "simulated", "injected on purpose")
        ended = self._history.jobs.expected(observation, self._history.policy.jobs.teardown_seconds)
        if ended is not None:
            return Finding(observation, Role.EXPECTED, quiet, "end_of_job",
                           f"channels taken down as the job {ended.job} was {ended.how}")  # fmt: skip
        explained = self._history.causes.explain(observation, self.by_code)
        if explained is not None:
            by = explained.by.judgement.code
            action = quiet if explained.rule.victim else judgement.action
            if action is Action.HARDWARE_TICKET:
                action = quiet
            return Finding(observation, Role.EXPLAINED, action, judgement.rule,
                           f"{judgement.why}; follows {by} ({explained.rule.name})", by)  # fmt: skip
        if judgement.cause is Cause.DETAIL:
            return Finding(
                observation, Role.DETAIL, judgement.action, judgement.rule, judgement.why
            )
        if observation.propagated:
            return Finding(observation, Role.EXPLAINED, judgement.action, judgement.rule,
                           f"{judgement.why}; the driver says it comes from elsewhere", "driver")  # fmt: skip
        return Finding(observation, Role.FAULT, judgement.action, judgement.rule, judgement.why)

    def _reached(
        self, threshold: Threshold, codes: CodeSet, observation: Observation
    ) -> str | None:
        """What was counted when a threshold is reached, else None."""
        end = observation.last_at
        begin = end - threshold.window_seconds
        everywhere = [
            each
            for code, observations in self.by_code.items()
            if code in codes
            for each in observations
            if each.last_at >= begin and each.first_at <= end and self._counts(each, threshold)
        ]
        same = [
            each
            for each in everywhere
            if (threshold.scope is Scope.NODE or each.device == observation.device)
            and (not threshold.same_place or each.judgement.place == observation.judgement.place)
            and (
                threshold.counted is not Counted.BOOTS
                or each.judgement.code == observation.judgement.code
            )
        ]
        if not self._counts(observation, threshold):
            return None
        if threshold.same_place and not observation.judgement.place:
            return None
        if threshold.others_quiet and any(each.device != observation.device for each in everywhere):
            return None
        number = self._number(threshold.counted, same, begin, end)
        if number < threshold.at_least:
            return None
        return f"{number} {threshold.counted} of {threshold.at_least} in {threshold.window_seconds:g} s"

    def _counts(self, observation: Observation, threshold: Threshold) -> bool:
        if threshold.variant and observation.judgement.variant != threshold.variant:
            return False
        return self._alone(observation).role is Role.FAULT

    def _number(
        self, counted: Counted, observations: list[Observation], begin: float, end: float
    ) -> int:
        if counted is Counted.EVENTS:
            return sum(each.count_since(begin) for each in observations)
        if counted is Counted.INCIDENTS:
            return len({self._home[id(each)].id for each in observations})
        if counted is Counted.GPUS:
            return len({each.device for each in observations if each.device is not None})
        if counted is Counted.BOOTS:
            return len({each.boot for each in observations})
        return len(self._jobs(observations, begin, end))

    def _jobs(self, observations: Iterable[Observation], begin: float, end: float) -> list[str]:
        """Different jobs that a fault has hit: by the ends of jobs, where those are told."""
        del end
        blame = self._history.policy.jobs.blame_seconds
        jobs = [job for each in observations for job in self._history.jobs.hit(each, blame, begin)]
        return sorted(set(jobs))
