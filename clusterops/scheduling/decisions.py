"""What a round of scheduling decides, as values: admit, preempt, wait.

A decision names its workloads by value and can be printed, compared and replayed; the queueing
controller applies it, tests and the simulator read it.
"""

from enum import StrEnum

import msgspec

from clusterops.scheduling.objects import Admission, Workload
from clusterops.scheduling.preemption import PreemptionReason


class Waiting(StrEnum):
    """Why a workload that was looked at goes on waiting."""

    NO_FIT = "NoFit"
    NO_CANDIDATES = "NoCandidates"
    PENDING_PREEMPTION = "PendingPreemption"
    SKIPPED = "Skipped"
    INADMISSIBLE = "Inadmissible"


class Admit(msgspec.Struct, frozen=True, tag=True):
    """Give a workload its reservation. `considered`: flavors passed over, for the event."""

    workload: Workload
    admission: Admission
    considered: str = ""


class Preempt(msgspec.Struct, frozen=True, tag=True):
    """Mark a workload evicted; its quota stays held until its owner gives it back."""

    victim: Workload
    preemptor: Workload
    reason: PreemptionReason
    message: str


class Wait(msgspec.Struct, frozen=True, tag=True):
    """A workload was looked at and stays in the queue.

    `victims`: uids of those that have to go first. `alike`: keys of workloads behind it that ask
    for exactly the same with the same priority, and so wait for the same reason.
    """

    workload: Workload
    why: Waiting
    message: str
    victims: tuple[str, ...] = ()
    alike: tuple[tuple[str, str], ...] = ()


Decision = Admit | Preempt | Wait


def line(decision: Decision) -> str:
    """A decision in one line, for logs, golden files and comparison."""
    match decision:
        case Admit(workload, admission):
            given = ", ".join(
                f"{pods.name} x{pods.count} "
                + " ".join(f"{resource}={pods.flavors[resource]}" for resource in pods.flavors)
                for pods in admission.assignments
            )
            return (
                f"admit {workload.namespace}/{workload.name} in {admission.cluster_queue}: {given}"
            )
        case Preempt(victim, preemptor, reason):
            return (
                f"preempt {victim.namespace}/{victim.name} for "
                f"{preemptor.namespace}/{preemptor.name}: {reason.value}"
            )
        case Wait(workload, why, message):
            return f"wait {workload.namespace}/{workload.name} {why.value}: {message}"
