"""What to do about one node's faults: the next steps, from all that is known of it. Pure.

A remediation answers one incident in one boot. It is written down before it acts, acts at most once,
expires, and ends with a proof: a node's taint goes when the checks have passed, and otherwise the
next rung of the ladder follows. What went away by itself is proven like what was repaired.
"""

from dataclasses import dataclass, replace

from clusterops.api.node_health import RemediationState as State
from clusterops.api.node_health import Rung, Verdict
from clusterops.core.remediation_actions import (
    Action,
    EndVerification,
    Execute,
    OpenTicket,
    PutTaint,
    RemoveTaint,
    Verify,
    WriteRemedy,
)
from clusterops.core.remediation_budget import Attempt
from clusterops.core.remediation_ladder import Ladder, height, next_rung, rung_for
from clusterops.core.remediation_view import Execution, NodeView, OpenIncident, Proof, Remedy


@dataclass(frozen=True)
class Decision:
    """The steps to take now, in order, and why."""

    actions: tuple[Action, ...]
    reason: str


def decide(
    node: NodeView, *, now: float, ladder: Ladder, refusal: str | None = None, enabled: bool = True
) -> Decision:
    """The next steps for one node. The same view gives the same steps; none means wait.

    `refusal` is the budgets' answer for something new. With `enabled` false (the kill switch) nothing
    is begun and nothing acted: what stands, stands.
    """
    if not enabled:
        return Decision((), "remediation is switched off")
    remedy = node.remedy
    target = _gravest(node.incidents)
    if remedy is None or remedy.state is State.DONE:
        if target is None:
            return _nothing_wrong(node)
        if refusal is not None:
            return Decision((), f"{target.verdict} for {target.id} has to wait: {refusal}")
        return _begin(node, target, _first_rung(node, target), now, ladder)
    if remedy.state in (State.FAILED, State.EXPIRED):
        return _after_failure(node, remedy, target, now, ladder)
    if target is not None and _graver(target, remedy):
        reason = f"{target.id} is graver than {remedy.incident}"
        return _begin(node, target, _first_rung(node, target), now, ladder, reason)
    return _STEPS[remedy.state](node, remedy, now, ladder)


def may_execute(order: Execute, node: NodeView, *, now: float, enabled: bool) -> str | None:
    """Asked again right before acting: why an order is stale, None when it is to be carried out."""
    remedy = node.remedy
    if not enabled:
        return "remediation is switched off"
    if remedy is None or remedy.key != order.key or remedy.state is not State.RUNNING:
        return "it is not what the node needs any more"
    if node.boot_id != order.boot_id:
        return f"the node has been rebooted since (boot {node.boot_id})"
    if order.expires is not None and now >= order.expires:
        return "it has expired"
    if all(each.id != order.incident for each in node.incidents):
        return f"the incident {order.incident} has ended"
    if remedy.execution is not Execution.NOT_STARTED:
        return "it was carried out already"
    return None


def _gravest(incidents: tuple[OpenIncident, ...]) -> OpenIncident | None:
    wanted = [each for each in incidents if rung_for(each.verdict) is not None]
    return min(wanted, key=lambda i: (-_height(i), i.opened_at, i.id), default=None)


def _height(incident: OpenIncident) -> int:
    rung = rung_for(incident.verdict)
    return height(rung) if rung is not None else -1


def _graver(target: OpenIncident, remedy: Remedy) -> bool:
    return target.id != remedy.incident and _height(target) > height(remedy.rung)


def _nothing_wrong(node: NodeView) -> Decision:
    if not node.tainted:
        return Decision((), "nothing is wrong")
    if node.remedy is not None:
        # Proven, and the operator ended before the taint was gone.
        return Decision((RemoveTaint(), EndVerification()), "the checks have passed")
    # Our taint and no record of why: only a proof takes it away.
    remedy = Remedy("unknown", "", node.boot_id, Rung.NONE, State.VERIFYING)
    return Decision((WriteRemedy(remedy), Verify(remedy.key)), "a taint without a known reason")


def _first_rung(node: NodeView, target: OpenIncident) -> Rung:
    """The verdict's rung, or the one above what failed for this very incident."""
    rung = rung_for(target.verdict)
    assert rung is not None
    failed = [a.rung for a in node.attempts if a.incident == target.id and a.failed]
    if not failed:
        return rung
    return max(rung, next_rung(max(failed, key=height)), key=height)


def _begin(
    node: NodeView,
    target: OpenIncident,
    rung: Rung,
    now: float,
    ladder: Ladder,
    reason: str = "",
) -> Decision:
    remedy = Remedy(
        incident=target.id,
        cause=target.cause,
        boot_id=node.boot_id,
        rung=rung,
        state=State.DRAINING,
        expires=now + ladder.drain(rung, target.cause),
        begun_at=now,
    )
    attempt = Attempt(node.name, target.id, target.cause, rung, now)
    actions = (WriteRemedy(remedy, attempt), _taint(remedy, ladder), EndVerification())
    return Decision(actions, reason or f"{target.verdict} for {target.id}: {rung} begins")


def _taint(remedy: Remedy, ladder: Ladder) -> PutTaint:
    return PutTaint(remedy.rung.value, ladder.notice(remedy.rung, remedy.cause))


def _planned(node: NodeView, remedy: Remedy, now: float, ladder: Ladder) -> Decision:
    del node
    drained_by = now + ladder.drain(remedy.rung, remedy.cause)
    fresh = replace(remedy, state=State.DRAINING, expires=drained_by)
    return Decision((WriteRemedy(fresh), _taint(fresh, ladder)), "draining begins")


def _draining(node: NodeView, remedy: Remedy, now: float, ladder: Ladder) -> Decision:
    gone = _overtaken(node, remedy)
    if gone is not None:
        return _verify(node, remedy, now, ladder, gone)
    late = remedy.expires is not None and now >= remedy.expires
    if node.jobs and not late:
        return Decision((_taint(remedy, ladder),), "jobs are leaving")
    limit = ladder.run(remedy.rung)
    running = replace(
        remedy, state=State.RUNNING, expires=now + limit if limit is not None else None
    )
    reason = "jobs did not leave in time" if node.jobs else "no job is left on the node"
    return Decision((_taint(remedy, ladder), WriteRemedy(running)), reason)


def _running(node: NodeView, remedy: Remedy, now: float, ladder: Ladder) -> Decision:
    if remedy.rung is Rung.HARDWARE_TICKET:
        return _with_ticket(node, remedy, now, ladder)
    # A reboot is seen by its new boot, whatever its executor says; a reset by its executor's word.
    rebooted = node.boot_id != remedy.boot_id
    reset = remedy.rung is not Rung.REBOOT_NODE and remedy.execution is Execution.SUCCEEDED
    if rebooted or reset:
        return _verify(node, remedy, now, ladder, "the action was carried out")
    if remedy.execution is Execution.FAILED:
        return _fail(node, remedy, f"{remedy.rung} failed")
    if remedy.expires is not None and now >= remedy.expires:
        if remedy.execution is Execution.NOT_STARTED:
            expired = replace(remedy, state=State.EXPIRED)
            return Decision((WriteRemedy(expired),), f"{remedy.rung} was not carried out in time")
        return _fail(node, remedy, f"{remedy.rung} did not end in time")
    if remedy.execution is Execution.NOT_STARTED:
        gone = _overtaken(node, remedy)
        if gone is not None:
            return _verify(node, remedy, now, ladder, gone)
        incident = next((i for i in node.incidents if i.id == remedy.incident), None)
        gpus = incident.gpus if incident is not None else ()
        if incident is not None and remedy.rung is Rung.RESET_GPU:
            gpus = incident.resets or incident.gpus
        order = Execute(
            remedy.key, remedy.rung, remedy.incident, remedy.boot_id, gpus, remedy.expires
        )
        return Decision((order,), f"{remedy.rung} is due")
    return Decision((), f"{remedy.rung} is being carried out")


def _with_ticket(node: NodeView, remedy: Remedy, now: float, ladder: Ladder) -> Decision:
    incident = next((i for i in node.incidents if i.id == remedy.incident), None)
    over = _overtaken(node, remedy)
    if incident is None and over is not None:
        return _verify(node, remedy, now, ladder, over)
    keep = _kept_out(node, remedy, ladder)
    if remedy.ticket is None:
        gpus = incident.gpus if incident is not None else ()
        return Decision(
            (*keep, OpenTicket(remedy.incident, remedy.cause, gpus)), "the vendor has to look at it"
        )
    return Decision(keep, f"waits for the vendor: ticket {remedy.ticket}")


def _verifying(node: NodeView, remedy: Remedy, now: float, ladder: Ladder) -> Decision:
    fresh = [
        each
        for each in node.incidents
        if rung_for(each.verdict) is not None
        and each.id != remedy.incident
        and each.opened_at > (remedy.executed_at or remedy.begun_at)
    ]
    if fresh:
        return _fail(node, remedy, f"{fresh[0].id} was seen after the repair")
    if node.proof is Proof.PASSED:
        done = replace(remedy, state=State.DONE, expires=None)
        return Decision(
            (WriteRemedy(done), RemoveTaint(), EndVerification()), "the checks have passed"
        )
    if node.proof is Proof.FAILED:
        return _fail(node, remedy, "the checks after the repair failed")
    if remedy.expires is not None and now >= remedy.expires:
        return _fail(node, remedy, "the checks after the repair did not end in time")
    keep = _kept_out(node, remedy, ladder)
    if node.proof is Proof.RUNNING:
        return Decision(keep, "the checks run")
    return Decision((*keep, Verify(remedy.key)), "the node has to prove that it is healthy")


def _verify(node: NodeView, remedy: Remedy, now: float, ladder: Ladder, reason: str) -> Decision:
    verifying = replace(
        remedy,
        state=State.VERIFYING,
        expires=now + ladder.verify_seconds,
        executed_at=now,
        boot_id=remedy.boot_id,
    )
    keep = _kept_out(node, remedy, ladder)
    return Decision((WriteRemedy(verifying), *keep, Verify(verifying.key)), reason)


def _kept_out(node: NodeView, remedy: Remedy, ladder: Ladder) -> tuple[Action, ...]:
    """The taint again, when somebody took it away before the node was proven."""
    return () if node.tainted else (_taint(remedy, ladder),)


def _fail(node: NodeView, remedy: Remedy, reason: str) -> Decision:
    attempt = Attempt(
        node.name, remedy.incident, remedy.cause, remedy.rung, remedy.begun_at, failed=True
    )
    failed = replace(remedy, state=State.FAILED, expires=None)
    return Decision((WriteRemedy(failed, attempt), EndVerification()), reason)


def _after_failure(
    node: NodeView, remedy: Remedy, target: OpenIncident | None, now: float, ladder: Ladder
) -> Decision:
    """One rung up after a failure; the same rung after an order that was never carried out."""
    failed = remedy.state is State.FAILED
    up = next_rung(remedy.rung) if failed else remedy.rung
    if remedy.rung is Rung.NONE or (target is None and not failed):
        return _verify(node, replace(remedy, rung=up if failed else remedy.rung), now, ladder,
                       "nothing is open any more, which has to be proven")  # fmt: skip
    if target is None:
        # The fault is not told any more, yet the node did not prove itself.
        target = OpenIncident(remedy.incident, Verdict.HEALTHY, remedy.begun_at, remedy.cause)
    elif target.id != remedy.incident:
        up = max(up, _first_rung(node, target), key=height)
    else:
        up = max(up, rung_for(target.verdict) or up, key=height)
    return _begin(node, target, up, now, ladder, f"{remedy.rung} did not help: {up} is next")


def _overtaken(node: NodeView, remedy: Remedy) -> str | None:
    """What made an action needless before it began; None when it is still needed."""
    if node.boot_id != remedy.boot_id:
        return "the node has been rebooted meanwhile"
    known = any(each.id == remedy.incident for each in node.incidents)
    # One rung up after failed checks, the incident may be told no more and the proof is still due.
    escalated = any(a.failed and a.incident == remedy.incident for a in node.attempts)
    return None if known or escalated else "the incident has ended meanwhile"


_STEPS = {
    State.PLANNED: _planned,
    State.DRAINING: _draining,
    State.RUNNING: _running,
    State.VERIFYING: _verifying,
}
