"""Budgets: how many at once, per rack, per window, per cause, and per node."""

from hypothesis import given
from hypothesis import strategies as st

from clusterops.api.node_health import Rung
from clusterops.core.remediation_budget import Attempt, Budgets, Fleet, FleetNode, allowed, refusal

WIDE = Budgets(share_at_once=1.0, per_rack=99, share_per_cause=1.0, per_window=99, per_node=99)
NOW = 100_000.0
NODE = FleetNode("n0", 8, "r0")


def fleet(size, *, out=0, cause="xid-79", cpu=0, attempts=(), rack="r9"):
    nodes = [NODE]
    nodes += [FleetNode(f"n{n}", 8, rack, cause if n <= out else "") for n in range(1, size)]
    nodes += [FleetNode(f"cpu{n}", 0) for n in range(cpu)]
    return Fleet(tuple(nodes), tuple(attempts))


def begun(node, at, incident="i", cause="xid-79"):
    return Attempt(node, incident, cause, Rung.REBOOT_NODE, at)


def asked(fleet, budgets=WIDE, cause="xid-79", node=NODE):
    return refusal(node, cause, fleet, budgets, NOW)


def test_a_single_node_may_always_be_repaired():
    assert asked(fleet(1), Budgets()) is None


def test_the_share_at_once_counts_gpu_nodes_only():
    budgets = Budgets(share_at_once=0.2, share_per_cause=1.0)
    assert asked(fleet(10, out=1, cpu=1000), budgets) is None
    assert "2 of 10 GPU nodes" in asked(fleet(10, out=2, cpu=1000), budgets)


def test_a_rack_keeps_its_other_nodes():
    budgets = Budgets(share_at_once=1.0, share_per_cause=1.0, per_rack=1)
    assert "rack r0" in asked(fleet(10, out=1, rack="r0"), budgets)
    assert asked(fleet(10, out=1, rack="r1"), budgets) is None


def test_one_cause_on_many_nodes_is_one_incident_of_software():
    budgets = Budgets(share_at_once=1.0, per_rack=99, share_per_cause=0.2)
    assert "a person has to look" in asked(fleet(10, out=2), budgets)
    assert asked(fleet(10, out=2), budgets, cause="xid-64") is None


def test_a_cause_that_passed_from_node_to_node_counts_within_the_window():
    budgets = Budgets(share_at_once=1.0, share_per_cause=0.2, per_window=99)
    attempts = [begun("n1", NOW - 10.0), begun("n2", NOW - 20.0)]
    assert "a person has to look" in asked(fleet(10, attempts=attempts), budgets)
    old = [begun("n1", NOW - 10.0), begun("n2", NOW - budgets.window_seconds - 1.0)]
    assert asked(fleet(10, attempts=old), budgets) is None


def test_a_window_has_a_number_and_several_rungs_are_one_remediation():
    budgets = Budgets(share_at_once=1.0, share_per_cause=1.0, per_window=2)
    rungs = [begun("n1", NOW - 30.0), begun("n1", NOW - 20.0), begun("n1", NOW - 10.0)]
    assert asked(fleet(10, attempts=rungs), budgets) is None
    assert "2 remediations were begun" in asked(
        fleet(10, attempts=[*rungs, begun("n2", NOW)]), budgets
    )


def test_a_node_that_comes_back_again_and_again_is_for_a_person():
    attempts = [begun("n0", NOW - n * 86_400.0, f"i{n}") for n in range(1, 6)]
    assert "this node had 5" in asked(fleet(10, attempts=attempts), Budgets())
    assert asked(fleet(10, attempts=attempts[1:]), Budgets()) is None


@given(st.floats(0.0, 1.0), st.integers(1, 10_000))
def test_a_share_is_never_less_than_one_node_nor_more_than_all(share, nodes):
    assert 1 <= allowed(share, nodes) <= nodes


@given(st.integers(1, 40), st.floats(0.01, 1.0))
def test_however_many_fail_together_no_more_than_the_share_goes_out(size, share):
    budgets = Budgets(
        share_at_once=share, per_rack=999, share_per_cause=1.0, per_window=999, per_node=999
    )
    nodes = {f"n{n}": FleetNode(f"n{n}", 8) for n in range(size)}
    for name, node in list(nodes.items()):
        if refusal(node, name, Fleet(tuple(nodes.values())), budgets, NOW) is None:
            nodes[name] = FleetNode(name, 8, cause=name)
    assert sum(node.out for node in nodes.values()) == allowed(share, size)
