"""Laws of the remediation under any course of events: crashes, failed repairs, faults that come and go.

A small world applies the decisions; it may lose the operator between any two writes.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

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
from clusterops.core.remediation_ladder import Ladder, height
from clusterops.core.remediation_view import Execution, NodeView, OpenIncident, Proof

LADDER = Ladder()
VERDICTS = (Verdict.RESET_GPU, Verdict.REBOOT_NODE, Verdict.HARDWARE_TICKET)


class World:
    """One node and what happens to it. `repairs` says which rung really helps."""

    def __init__(self, helps: Rung):
        self.helps = helps
        self.now = 1000.0
        self.node = NodeView("n1", "boot-0", jobs=("r/a",))
        self.boots = 0
        self.broken = False
        self.executed: list[str] = []
        self.checks_of: str | None = None
        self.rungs: list[tuple[str, Rung]] = []

    def change(self, **fields):
        self.node = replace(self.node, **fields)

    def fault(self, verdict):
        number = len(self.node.incidents) + len(self.rungs)
        incident = OpenIncident(
            f"i{number}-{self.now:g}", verdict, self.now, "xid", self.node.boot_id
        )
        self.broken = True
        self.change(incidents=(*self.node.incidents, incident))

    def repaired_by(self, rung):
        if height(rung) >= height(self.helps):
            self.broken = False
            self.change(incidents=())

    def reboot(self):
        self.boots += 1
        self.change(
            boot_id=f"boot-{self.boots}",
            jobs=(),
            incidents=tuple(i for i in self.node.incidents if i.verdict is Verdict.HARDWARE_TICKET),
        )

    def operate(self, crash_after: int | None = None) -> int:
        """One pass of the operator, which may be lost after some writes. Gives their number."""
        actions = decide(self.node, now=self.now, ladder=LADDER).actions
        for number, action in enumerate(actions):
            if crash_after is not None and number >= crash_after:
                break
            self.apply(action)
        return len(actions)

    def apply(self, action):
        node = self.node
        if isinstance(action, WriteRemedy):
            if action.remedy.state is State.DONE:
                assert node.proof is Proof.PASSED, "nothing proves that the node is healthy"
            if action.remedy != node.remedy and action.remedy.key != self.checks_of:
                self.change(proof=Proof.NONE)
            self.change(remedy=action.remedy)
            if action.attempt is not None:
                if action.attempt not in node.attempts:
                    self.change(attempts=(*node.attempts, action.attempt))
                self.rungs.append((action.attempt.incident, action.attempt.rung))
        elif isinstance(action, PutTaint):
            self.change(tainted=True)
        elif isinstance(action, RemoveTaint):
            assert not self.broken, "a broken node was given back"
            self.change(tainted=False)
        elif isinstance(action, Execute):
            self.execute(action)
        elif isinstance(action, OpenTicket):
            self.change(remedy=replace(node.remedy, ticket="T-1"))
        elif isinstance(action, Verify):
            self.checks_of = action.key
            self.change(proof=Proof.RUNNING)
        else:
            assert isinstance(action, EndVerification)
            self.checks_of = None
            self.change(proof=Proof.NONE)

    def execute(self, order):
        assert may_execute(order, self.node, now=self.now, enabled=True) is None
        assert order.key not in self.executed, "an action was carried out twice"
        self.executed.append(order.key)
        self.change(remedy=replace(self.node.remedy, execution=Execution.STARTED))

    def outcome(self, success: bool):
        """What was started ends; what runs on the node is over."""
        remedy = self.node.remedy
        if remedy is None or remedy.state is not State.RUNNING:
            return
        if remedy.execution is Execution.STARTED:
            result = Execution.SUCCEEDED if success else Execution.FAILED
            self.change(remedy=replace(remedy, execution=result))
            if success and remedy.rung is Rung.REBOOT_NODE:
                self.reboot()
            if success:
                self.repaired_by(remedy.rung)

    def checks(self):
        if self.node.proof is Proof.RUNNING:
            self.change(proof=Proof.FAILED if self.broken else Proof.PASSED)

    def vendor(self):
        remedy = self.node.remedy
        if remedy is not None and remedy.ticket is not None and remedy.state is State.RUNNING:
            self.broken = False
            self.reboot()
            self.change(incidents=())


events = st.one_of(
    st.tuples(st.just("operate"), st.none() | st.integers(0, 4)),
    st.tuples(st.just("fault"), st.sampled_from(VERDICTS)),
    st.tuples(st.just("time"), st.sampled_from([1.0, 60.0, 700.0, 2000.0])),
    st.tuples(st.just("outcome"), st.booleans()),
    st.tuples(st.just("checks"), st.none()),
    st.tuples(st.just("leave"), st.none()),
    st.tuples(st.just("reboot"), st.none()),
)


def play(world: World, story):
    for kind, value in story:
        if kind == "operate":
            world.operate(value)
        elif kind == "fault":
            world.fault(value)
        elif kind == "time":
            world.now += value
        elif kind == "outcome":
            world.outcome(value)
        elif kind == "checks":
            world.checks()
        elif kind == "leave":
            world.change(jobs=())
        else:
            world.reboot()


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([Rung.RESET_GPU, Rung.REBOOT_NODE, Rung.HARDWARE_TICKET]),
    st.lists(events, max_size=60),
)
def test_nothing_acts_twice_and_nothing_broken_returns_whatever_happens(helps, story):
    play(World(helps), story)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([Rung.RESET_GPU, Rung.REBOOT_NODE, Rung.HARDWARE_TICKET]),
    st.lists(events, max_size=30),
)
def test_in_the_end_every_node_is_healthy_again_and_free(helps, story):
    world = World(helps)
    play(world, story)
    for _ in range(80):
        world.operate()
        world.change(jobs=())
        world.outcome(True)
        world.checks()
        world.vendor()
        world.now += 30.0
        # A fault is told as long as it is there.
        if world.broken and not world.node.incidents and world.node.proof is Proof.NONE:
            world.fault(Verdict.RESET_GPU)
    assert not world.broken
    assert not world.node.tainted
    assert world.operate() == 0, "something is still to be done on a healthy node"


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(VERDICTS))
def test_when_nothing_helps_the_rungs_rise_to_the_ticket_and_stay(verdict):
    world = World(Rung.HARDWARE_TICKET)
    world.fault(verdict)
    for _ in range(60):
        world.operate()
        world.change(jobs=())
        world.outcome(False)
        world.checks()
        world.now += 30.0
    heights = [height(rung) for _, rung in world.rungs]
    assert heights == sorted(heights)
    assert world.node.remedy.ticket == "T-1"
    assert world.node.tainted
    assert world.operate() == 0, "the vendor is waited for in peace"


@given(st.lists(events, max_size=40))
def test_the_same_view_gives_the_same_steps(story):
    world = World(Rung.REBOOT_NODE)
    play(world, story)
    first = decide(world.node, now=world.now, ladder=LADDER)
    assert decide(world.node, now=world.now, ladder=LADDER) == first
