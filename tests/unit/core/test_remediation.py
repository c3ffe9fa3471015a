"""One node's remediation: each step, each way it can go wrong, and that nothing stale acts."""

from dataclasses import replace

import pytest

from clusterops.api.node_health import RemediationState as State
from clusterops.api.node_health import Rung, Verdict
from clusterops.core.remediation import decide, may_execute
from clusterops.core.remediation_actions import (
    EndVerification,
    Execute,
    OpenTicket,
    PutTaint,
    RemoveTaint,
    Verify,
    WriteRemedy,
)
from clusterops.core.remediation_budget import Attempt
from clusterops.core.remediation_ladder import Ladder
from clusterops.core.remediation_view import Execution, NodeView, OpenIncident, Proof, Remedy

LADDER = Ladder()
NOW = 1000.0
LOST = OpenIncident("xid-79-a", Verdict.REBOOT_NODE, 900.0, "xid-79", "b1", ("GPU-1",))
ECC = OpenIncident("xid-94-b", Verdict.RESET_GPU, 900.0, "xid-94", "b1", ("GPU-1",))
DEAD = OpenIncident("remap-c", Verdict.HARDWARE_TICKET, 900.0, "xid-64", "b1", ("GPU-2",))


def remedy(state, rung=Rung.REBOOT_NODE, incident=LOST, **more):
    known = {"boot_id": "b1", "expires": NOW + 100.0, "begun_at": 950.0}
    return Remedy(incident.id, incident.cause, rung=rung, state=state, **{**known, **more})


def view(*incidents, boot="b1", **more):
    return NodeView("n1", boot, tuple(incidents), **more)


def step(node, **more):
    return decide(node, now=NOW, ladder=LADDER, **more)


def only(decision, kind):
    found = [action for action in decision.actions if isinstance(action, kind)]
    assert len(found) <= 1, found
    return found[0] if found else None


@pytest.mark.parametrize("verdict", [Verdict.HEALTHY, Verdict.WATCH, Verdict.RESTART_APP])
def test_what_is_no_fault_of_the_node_does_nothing_to_it(verdict):
    assert step(view(replace(LOST, verdict=verdict))).actions == ()


def test_a_fault_taints_and_drains_and_is_written_down_first():
    decision = step(view(ECC, jobs=("r/a", "r/b")))
    written = decision.actions[0].remedy
    assert written == remedy(
        State.DRAINING,
        Rung.RESET_GPU,
        ECC,
        begun_at=NOW,
        expires=NOW + LADDER.drain(Rung.RESET_GPU),
    )
    assert decision.actions[0].attempt == Attempt("n1", ECC.id, ECC.cause, Rung.RESET_GPU, NOW)
    assert only(decision, PutTaint) == PutTaint("reset_gpu", LADDER.notice_seconds)
    assert only(decision, Execute) is None


@pytest.mark.parametrize(
    "fault", [LOST, replace(ECC, cause="xid-95"), replace(ECC, cause="xid-140")]
)
def test_a_gpu_that_is_gone_or_may_have_spoilt_the_work_gives_no_time_to_save(fault):
    assert only(step(view(fault, jobs=("r/a",))), PutTaint).notice_seconds == 0


def test_the_gravest_of_several_incidents_is_answered():
    assert only(step(view(ECC, DEAD, LOST)), WriteRemedy).remedy.incident == DEAD.id


def test_the_budgets_refusal_is_the_reason_for_waiting():
    decision = step(view(LOST), refusal="3 of 30 GPU nodes are out already")
    assert decision.actions == ()
    assert "3 of 30" in decision.reason


@pytest.mark.parametrize("state", [None, *State])
def test_the_kill_switch_stops_everything(state):
    node = view(LOST, remedy=remedy(state) if state else None, proof=Proof.PASSED, tainted=True)
    assert step(node, enabled=False).actions == ()


def test_jobs_are_waited_for_until_the_deadline():
    node = view(
        ECC, remedy=remedy(State.DRAINING, Rung.RESET_GPU, ECC), jobs=("r/a",), tainted=True
    )
    assert only(step(node), WriteRemedy) is None
    late = replace(node, remedy=replace(node.remedy, expires=NOW))
    assert only(step(late), WriteRemedy).remedy.state is State.RUNNING
    empty = replace(node, jobs=())
    assert only(step(empty), WriteRemedy).remedy.state is State.RUNNING


def test_a_fault_that_went_away_while_draining_is_proven_and_nothing_is_rebooted():
    decision = step(view(remedy=remedy(State.DRAINING), tainted=True))
    assert only(decision, WriteRemedy).remedy.state is State.VERIFYING
    assert only(decision, Verify)
    assert only(decision, Execute) is None


def test_a_reboot_by_somebody_else_takes_the_place_of_ours():
    for state in (State.DRAINING, State.RUNNING):
        decision = step(view(LOST, boot="b2", remedy=remedy(state), tainted=True))
        assert only(decision, WriteRemedy).remedy.state is State.VERIFYING
        assert only(decision, Execute) is None


def test_an_action_names_its_incident_boot_and_expiry():
    order = only(step(view(LOST, remedy=remedy(State.RUNNING), tainted=True)), Execute)
    assert order == Execute(
        "xid-79-a/b1/reboot_node", Rung.REBOOT_NODE, LOST.id, "b1", ("GPU-1",), NOW + 100.0
    )


def test_an_action_that_has_started_is_never_ordered_again():
    started = remedy(State.RUNNING, execution=Execution.STARTED)
    assert step(view(LOST, remedy=started, tainted=True)).actions == ()
    late = step(view(LOST, remedy=replace(started, expires=NOW), tainted=True))
    assert only(late, WriteRemedy).remedy.state is State.FAILED
    assert only(late, Execute) is None


def test_an_order_that_nobody_carried_out_expires_and_may_begin_anew():
    late = remedy(State.RUNNING, expires=NOW)
    decision = step(view(LOST, remedy=late, tainted=True))
    assert decision.actions == (WriteRemedy(replace(late, state=State.EXPIRED)),)
    again = step(view(LOST, remedy=replace(late, state=State.EXPIRED), tainted=True))
    assert only(again, WriteRemedy).remedy.rung is Rung.REBOOT_NODE
    assert only(again, WriteRemedy).remedy.state is State.DRAINING


def test_a_reboot_counts_when_the_new_boot_is_there_and_not_when_its_command_ended():
    done = remedy(State.RUNNING, execution=Execution.SUCCEEDED)
    assert step(view(LOST, remedy=done, tainted=True)).actions == ()
    decision = step(view(remedy=done, boot="b2", tainted=True))
    assert only(decision, WriteRemedy).remedy.state is State.VERIFYING


def test_the_taint_goes_when_the_checks_have_passed_and_not_before():
    node = view(boot="b2", remedy=remedy(State.VERIFYING, executed_at=990.0), tainted=True)
    assert only(step(node), Verify)
    for proof in (Proof.NONE, Proof.RUNNING, Proof.FAILED):
        assert only(step(replace(node, proof=proof)), RemoveTaint) is None
    passed = step(replace(node, proof=Proof.PASSED))
    assert only(passed, RemoveTaint)
    assert only(passed, WriteRemedy).remedy.state is State.DONE
    assert only(passed, EndVerification)


def test_a_fault_after_the_repair_outweighs_checks_that_passed():
    again = replace(LOST, id="xid-79-z", opened_at=995.0)
    node = view(again, boot="b2", remedy=remedy(State.VERIFYING, executed_at=990.0),
                proof=Proof.PASSED, tainted=True)  # fmt: skip
    decision = step(node)
    assert only(decision, RemoveTaint) is None
    assert only(decision, WriteRemedy).remedy.state is State.FAILED


@pytest.mark.parametrize(
    ("rung", "following"),
    [
        (Rung.RESET_GPU, Rung.REBOOT_NODE),
        (Rung.REBOOT_NODE, Rung.HARDWARE_TICKET),
        (Rung.HARDWARE_TICKET, Rung.HARDWARE_TICKET),
    ],
)
@pytest.mark.parametrize("told", [True, False])
def test_a_failed_rung_leads_to_the_next_even_when_the_fault_is_told_no_more(rung, following, told):
    node = view(*([ECC] if told else []), remedy=remedy(State.FAILED, rung, ECC), tainted=True)
    assert only(step(node, refusal="no budget"), WriteRemedy).remedy.rung is following


def test_what_failed_for_an_incident_before_is_not_tried_again():
    failed = Attempt("n1", ECC.id, ECC.cause, Rung.RESET_GPU, 10.0, failed=True)
    assert only(step(view(ECC, attempts=(failed,))), WriteRemedy).remedy.rung is Rung.REBOOT_NODE


def test_a_graver_fault_on_a_node_that_is_out_already_takes_over():
    node = view(ECC, DEAD, remedy=remedy(State.DRAINING, Rung.RESET_GPU, ECC), tainted=True)
    written = only(step(node, refusal="no budget"), WriteRemedy).remedy
    assert (written.incident, written.rung) == (DEAD.id, Rung.HARDWARE_TICKET)


def test_a_ticket_is_opened_once_and_then_waited_for():
    node = view(
        DEAD, remedy=remedy(State.RUNNING, Rung.HARDWARE_TICKET, DEAD, expires=None), tainted=True
    )
    assert only(step(node), OpenTicket) == OpenTicket(DEAD.id, "xid-64", ("GPU-2",))
    waiting = replace(node, remedy=replace(node.remedy, ticket="T-1"))
    assert step(waiting).actions == ()
    assert "T-1" in step(waiting).reason
    replaced = step(replace(waiting, incidents=()))
    assert only(replaced, Verify)


def test_a_ticket_after_checks_that_failed_is_opened_though_nothing_is_told_any_more():
    failed = Attempt("n1", LOST.id, "xid-79", Rung.REBOOT_NODE, 10.0, failed=True)
    at_vendor = remedy(State.RUNNING, Rung.HARDWARE_TICKET, expires=None, boot_id="b2")
    node = view(boot="b2", remedy=at_vendor, attempts=(failed,), tainted=True)
    assert only(step(node), OpenTicket)
    with_ticket = replace(node, remedy=replace(at_vendor, ticket="T-1"))
    assert step(with_ticket).actions == ()
    assert only(step(replace(with_ticket, boot_id="b3")), Verify)


def test_a_taint_of_ours_without_a_record_goes_only_by_proof():
    decision = step(view(tainted=True))
    assert only(decision, Verify)
    assert only(decision, RemoveTaint) is None


def test_an_operator_that_ended_between_proof_and_taint_finishes_it():
    node = view(remedy=remedy(State.DONE), tainted=True)
    assert only(step(node), RemoveTaint)


ORDER = Execute("xid-79-a/b1/reboot_node", Rung.REBOOT_NODE, LOST.id, "b1", (), NOW + 100.0)
DUE = view(LOST, remedy=remedy(State.RUNNING), tainted=True)


def test_an_order_is_asked_about_again_right_before_it_acts():
    assert may_execute(ORDER, DUE, now=NOW, enabled=True) is None


@pytest.mark.parametrize(
    ("node", "now", "enabled", "why"),
    [
        (DUE, NOW, False, "switched off"),
        (replace(DUE, remedy=None), NOW, True, "not what the node needs"),
        (replace(DUE, remedy=remedy(State.VERIFYING)), NOW, True, "not what the node needs"),
        (replace(DUE, remedy=remedy(State.RUNNING, Rung.RESET_GPU)), NOW, True, "not what"),
        (replace(DUE, boot_id="b2"), NOW, True, "rebooted"),
        (DUE, NOW + 100.0, True, "expired"),
        (replace(DUE, incidents=()), NOW, True, "ended"),
        (
            replace(DUE, remedy=remedy(State.RUNNING, execution=Execution.STARTED)),
            NOW,
            True,
            "already",
        ),
    ],
)
def test_a_stale_order_is_not_carried_out(node, now, enabled, why):
    assert why in may_execute(ORDER, node, now=now, enabled=enabled)


def test_a_reset_is_ordered_for_all_gpus_that_reset_together_and_a_reboot_for_the_node():
    tied = replace(ECC, resets=("GPU-1", "GPU-2"))
    running = view(tied, remedy=remedy(State.RUNNING, Rung.RESET_GPU, tied), tainted=True)
    assert only(step(running), Execute).gpus == ("GPU-1", "GPU-2")
    alone = view(ECC, remedy=remedy(State.RUNNING, Rung.RESET_GPU, ECC), tainted=True)
    assert only(step(alone), Execute).gpus == ("GPU-1",)
    lost = replace(LOST, resets=("GPU-1", "GPU-2"))
    reboot = view(lost, remedy=remedy(State.RUNNING, incident=lost), tainted=True)
    assert only(step(reboot), Execute).gpus == ("GPU-1",)
