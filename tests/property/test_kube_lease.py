"""Leader election under any faults: never two that may write, and a healthy one leads in the end."""

import asyncio
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.kube_cluster import WIDGETS, FakeCluster, FakeTransport, status_answer
from support.kube_virtual_time import VirtualTimeLoop, end, settle

from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError, Unreachable
from clusterops.kube.lease import LeaderElection
from clusterops.kube.retry import RetryPolicy

WHO = st.integers(0, 2)
FAULTS = ["", "refused", "500", "409", "silent", "answers lost", "slow there", "slow back"]


class Candidate:
    """One process: its own clock rate, its own network, work that writes all the time."""

    def __init__(self, cluster, number, check):
        self.number = number
        self.rate = (0.99, 1.0, 1.01)[number]
        self.skipped = 0.0
        self.frozen_until = 0.0
        self.fault = ""
        self.check = check
        self.transport = FakeTransport(cluster)
        self.transport.before = self.on_the_way_there
        self.transport.after = self.on_the_way_back
        self.election = LeaderElection(
            Client(self.transport),
            namespace="ns",
            name="operator",
            identity=f"candidate-{number}",
            now=self.now,
            rng=random.Random(number),
        )
        self.client = Client(self.election.fenced(self.transport), retry=RetryPolicy(attempts=1))
        self.writes = 0

    def now(self):
        return asyncio.get_running_loop().time() * self.rate + self.skipped

    async def thaw(self):
        await asyncio.sleep(max(0.0, self.frozen_until - asyncio.get_running_loop().time()))

    async def on_the_way_there(self, method, path):
        if path.endswith("widgets"):
            self.check(self)
        await self.thaw()
        if self.fault == "refused":
            return Unreachable("refused")
        if self.fault == "500":
            return status_answer(500, "InternalError")
        if self.fault == "409" and method == "PUT":
            return status_answer(409, "Conflict")
        if self.fault == "silent":
            await asyncio.Event().wait()
        if self.fault == "slow there":
            await asyncio.sleep(4)
        return None

    async def on_the_way_back(self, *_):
        await self.thaw()
        if self.fault == "answers lost":
            await asyncio.Event().wait()
        if self.fault == "slow back":
            await asyncio.sleep(4)

    async def work(self):
        while True:
            try:
                metadata = {"namespace": "ns", "name": f"w-{self.number}-{self.writes}"}
                self.writes += 1
                await self.client.create(WIDGETS, {"metadata": metadata})
            except KubeError:
                pass
            await asyncio.sleep(0.3)


class LeaseMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.candidates = []
        self.tasks = {}
        self.do(self.begin)

    async def begin(self):
        self.cluster = FakeCluster()
        self.candidates = [Candidate(self.cluster, n, self.only_one_writes) for n in range(3)]
        for candidate in self.candidates:
            self.start(candidate)
        self.watchdog = asyncio.create_task(self.watch())

    async def watch(self):
        while True:
            self.at_most_one_leads()
            await asyncio.sleep(0.1)

    def start(self, candidate):
        self.tasks[candidate.number] = asyncio.create_task(candidate.election.run(candidate.work))

    def do(self, action, *arguments):
        async def step():
            result = action(*arguments)
            if asyncio.iscoroutine(result):
                await result
            await settle()
            if self.candidates and self.watchdog.done():
                self.watchdog.result()

        self.loop.run_until_complete(step())

    def leads(self, candidate):
        async def ask():
            return candidate.election.is_leader

        return self.loop.run_until_complete(ask())

    def only_one_writes(self, writer):
        leaders = [c.number for c in self.candidates if c.election.is_leader]
        assert leaders == [writer.number], f"{writer.number} writes, leading: {leaders}"

    def at_most_one_leads(self):
        leaders = [c.number for c in self.candidates if c.election.is_leader]
        assert len(leaders) <= 1, f"leading at once: {leaders}"

    @rule(who=WHO, fault=st.sampled_from(FAULTS))
    def the_network_goes_wrong(self, who, fault):
        self.candidates[who].fault = fault

    @rule(who=WHO, seconds=st.floats(0.5, 40))
    def a_process_stands_still(self, who, seconds):
        """Nothing goes in or out; what it had begun goes on afterwards."""

        def freeze():
            self.candidates[who].frozen_until = self.loop.time() + seconds

        self.do(freeze)

    @rule(seconds=st.floats(0.5, 40))
    def the_leader_wakes_up_late(self, seconds):
        """Its clock has gone on, and none of its timers has fired yet."""
        for candidate in self.candidates:
            if self.leads(candidate):
                candidate.skipped += seconds

    @rule(who=WHO)
    def a_process_is_stopped_or_started(self, who):
        task = self.tasks[who]

        async def toggle():
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return
            self.start(self.candidates[who])

        self.do(toggle)

    @rule()
    def somebody_deletes_the_lease_of_nobody(self):
        lease = self.cluster.objects.get(("leases", "ns", "operator"))
        if lease is not None and not lease["spec"].get("holderIdentity"):
            self.do(self.cluster.remove, "leases", "ns", "operator")

    @rule(seconds=st.floats(0.1, 25))
    def time_passes(self, seconds):
        self.do(settle, seconds)

    @invariant()
    def never_two(self):
        self.do(self.at_most_one_leads)

    def teardown(self):
        try:
            for candidate in self.candidates:
                candidate.fault = ""
                if self.tasks[candidate.number].done():
                    self.do(self.start, candidate)
            self.do(settle, 120.0)

            def one_leads():
                leaders = [c for c in self.candidates if c.election.is_leader]
                assert len(leaders) == 1
                assert all(not task.done() for task in self.tasks.values())

            self.do(one_leads)
        finally:
            end(self.loop)


TestLease = LeaseMachine.TestCase
TestLease.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
