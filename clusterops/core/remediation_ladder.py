"""The rungs of the remediation ladder, and what each needs from the jobs on the node. Pure."""

from dataclasses import dataclass

from clusterops.api.node_health import Rung, Verdict

# Least drastic first; a rung that failed leads to the next one.
LADDER = (Rung.RESET_GPU, Rung.REBOOT_NODE, Rung.HARDWARE_TICKET)
_RUNGS = {
    Verdict.RESET_GPU: Rung.RESET_GPU,
    Verdict.REBOOT_NODE: Rung.REBOOT_NODE,
    Verdict.HARDWARE_TICKET: Rung.HARDWARE_TICKET,
}


@dataclass(frozen=True)
class Ladder:
    """How long each step may take, in seconds."""

    notice_seconds: int = 120
    """Time that jobs get to save before a reset or a visit of the vendor."""
    uncontained: tuple[str, ...] = ("xid-95", "xid-140")
    """Causes that may have spoilt what the jobs compute: they are ended at once, and nothing of it
    is saved."""
    drain_slack_seconds: int = 60
    """How long after the notice the pods may take to go."""
    reset_seconds: int = 300
    reboot_seconds: int = 1200
    verify_seconds: int = 900

    def notice(self, rung: Rung, cause: str = "") -> int:
        """The deadline for saving. What calls for a reboot has ended its job: none."""
        lost = rung is Rung.REBOOT_NODE or cause in self.uncontained
        return 0 if lost else self.notice_seconds

    def drain(self, rung: Rung, cause: str = "") -> int:
        """How long draining may take before the action goes on without it."""
        return self.notice(rung, cause) + self.drain_slack_seconds

    def run(self, rung: Rung) -> int | None:
        """How long the action may take; a ticket has all the time that the vendor needs."""
        return {Rung.RESET_GPU: self.reset_seconds, Rung.REBOOT_NODE: self.reboot_seconds}.get(rung)


def rung_for(verdict: Verdict) -> Rung | None:
    """The rung that a verdict asks for; None when nothing is to be done to the node."""
    return _RUNGS.get(verdict)


def height(rung: Rung) -> int:
    """How drastic a rung is: -1 when it is none of the ladder."""
    return LADDER.index(rung) if rung in LADDER else -1


def next_rung(failed: Rung) -> Rung:
    """The rung after one that failed; above the last there is none."""
    return LADDER[min(height(failed) + 1, len(LADDER) - 1)]
