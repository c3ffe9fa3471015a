"""What each observation of a node means in its surroundings: expected, explained, repeated, or not."""

from enum import StrEnum

import msgspec

from health.actions import Action
from health.catalogue.rows import Cause
from health.events import PciAddress
from health.fold.history import History
from health.fold.incident import Incident, Observation
from health.verdict.repetition import Counter


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
        self._counters = [
            Counter(threshold, self._is_fault, history) for threshold in history.policy.thresholds
        ]
        self._base: dict[int, Finding] = {}
        self._near: dict[str, dict[str, list[Observation]]] = {}
        self._by_code: dict[str, list[tuple[Observation, Incident]]] = {}
        for incident in history.incidents:
            for observation in incident.observations.values():
                told = self._by_code.setdefault(observation.judgement.code, [])
                told.append((observation, incident))

    def findings(self, incident: Incident) -> list[Finding]:
        """What each observation of an incident means."""
        return [self._finding(each, incident) for each in incident.observations.values()]

    def _finding(self, observation: Observation, incident: Incident) -> Finding:
        found = self._alone(observation, incident)
        if found.role is not Role.FAULT:
            return found
        for counter in self._counters:
            threshold = counter.threshold
            if not counter.concerns(observation):
                continue
            if threshold.action.severity <= found.action.severity:
                continue
            vendor = threshold.action is Action.HARDWARE_TICKET
            if vendor and not observation.judgement.ticket_allowed:
                continue
            counter.read(self._by_code)
            reached = counter.reached(observation)
            if reached is not None:
                why = f"{found.why}; {threshold.why} ({reached})"
                found = Finding(observation, Role.FAULT, threshold.action, threshold.name, why)
        return found

    def _is_fault(self, observation: Observation, incident: Incident) -> bool:
        return self._alone(observation, incident).role is Role.FAULT

    def _alone(self, observation: Observation, incident: Incident) -> Finding:
        """Role and action before repetition is looked at."""
        known = self._base.get(id(observation))
        if known is None:
            known = self._base[id(observation)] = self._role(observation, incident)
        return known

    def _role(self, observation: Observation, incident: Incident) -> Finding:
        judgement = observation.judgement
        quiet = Action.NONE

        def finding(role: Role, action: Action, why: str, by: str = "") -> Finding:
            rule = "end_of_job" if role is Role.EXPECTED else judgement.rule
            return Finding(observation, role, action, rule, why, by)

        if observation.simulated:
            return finding(Role.EXPECTED, quiet, "injected on purpose")
        teardown = self._history.policy.jobs.teardown_seconds
        ended = self._history.jobs.expected(observation, teardown)
        if ended is not None:
            why = f"channels taken down as the job {ended.job} was {ended.how}"
            return finding(Role.EXPECTED, quiet, why)
        explained = self._history.causes.explain(observation, self._around(incident))
        if explained is not None:
            by = explained.by.judgement.code
            ticket = judgement.action is Action.HARDWARE_TICKET
            action = quiet if explained.rule.victim or ticket else judgement.action
            why = f"{judgement.why}; follows {by} ({explained.rule.name})"
            return finding(Role.EXPLAINED, action, why, by)
        if judgement.cause is Cause.DETAIL:
            return finding(Role.DETAIL, judgement.action, judgement.why)
        if observation.propagated:
            why = f"{judgement.why}; the driver says it comes from elsewhere"
            return finding(Role.EXPLAINED, judgement.action, why, "driver")
        return finding(Role.FAULT, judgement.action, judgement.why)

    def _around(self, incident: Incident) -> dict[str, list[Observation]]:
        """The observations near an incident, by code: only those can explain what is in it."""
        known = self._near.get(incident.id)
        if known is None:
            known = self._near[incident.id] = {}
            reach = self._history.causes.reach_seconds
            for other in self._history.incidents:
                apart = other.last_at < incident.opened_at - reach
                if apart or other.opened_at > incident.last_at + reach:
                    continue
                for observation in other.observations.values():
                    known.setdefault(observation.judgement.code, []).append(observation)
        return known
