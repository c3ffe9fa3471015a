"""Leader election: one at a time, quick hand-over, and no write after a loss."""

import asyncio
import random

import pytest
from support.kube_cluster import WIDGETS, FakeCluster, FakeTransport, status_answer
from support.kube_virtual_time import run, settle, until

from clusterops.kube.client import Client
from clusterops.kube.errors import Retryable, Unreachable
from clusterops.kube.lease import LeaderElection, LostLeadership
from clusterops.kube.retry import RetryPolicy

ONE_TRY = RetryPolicy(attempts=1)


def loop_time():
    return asyncio.get_running_loop().time()


class Candidate:
    """An election whose work writes a widget every half second through the fence."""

    def __init__(self, cluster, name, *, now=loop_time, **options):
        self.name = name
        self.transport = FakeTransport(cluster)
        self.told = []
        self.writes = []
        self.refused = 0
        self.election = LeaderElection(
            Client(self.transport),
            namespace="ns",
            name="operator",
            identity=name,
            on_started=lambda: self.told.append("started"),
            on_stopped=lambda: self.told.append("stopped"),
            now=now,
            rng=random.Random(name),
            **options,
        )
        self.client = Client(self.election.fenced(self.transport), retry=ONE_TRY)
        self.task = None

    async def work(self):
        while True:
            try:
                await self.client.create(WIDGETS, self.widget())
                self.writes.append(loop_time())
            except LostLeadership:
                self.refused += 1
            except Retryable:
                pass
            await asyncio.sleep(0.5)

    def widget(self):
        name = f"{self.name}-{len(self.writes)}-{loop_time()}"
        return {"metadata": {"namespace": "ns", "name": name}}

    def start(self, work=None):
        self.task = asyncio.create_task(self.election.run(work or self.work))
        return self

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def lease_of(cluster):
    return cluster.objects["leases", "ns", "operator"]["spec"]


def test_the_first_takes_the_lease_and_keeps_it():
    async def scenario():
        cluster = FakeCluster()
        a, b = Candidate(cluster, "a").start(), Candidate(cluster, "b").start()
        await settle(120)
        leaders = [c for c in (a, b) if c.election.is_leader]
        assert len(leaders) == 1
        other = b if leaders == [a] else a
        assert other.writes == []
        assert other.election.holder == leaders[0].name
        spec = lease_of(cluster)
        assert spec["leaseDurationSeconds"] == 15
        assert spec["leaseTransitions"] == 0
        assert spec["acquireTime"] < spec["renewTime"]
        await a.stop()
        await b.stop()

    run(scenario())


def test_a_leader_that_ends_releases_and_the_next_starts_within_a_retry_period():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(5)
        b = Candidate(cluster, "b").start()
        await settle(5)
        await a.stop()
        assert lease_of(cluster)["holderIdentity"] == ""
        assert a.told == ["started", "stopped"]
        start = loop_time()
        await until(lambda: b.election.is_leader)
        assert loop_time() - start <= 2.5
        assert lease_of(cluster)["leaseTransitions"] == 1
        await b.stop()

    run(scenario())


def test_while_the_work_ends_the_lease_goes_on_being_renewed():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a", lease_seconds=60, renew_deadline_seconds=40)
        late_write = []

        async def slow_to_end():
            try:
                await asyncio.sleep(1e6)
            finally:
                await asyncio.sleep(30)
                late_write.append(await a.client.create(WIDGETS, a.widget()))

        a.start(slow_to_end)
        await settle(5)
        b = Candidate(cluster, "b").start()
        await a.stop()
        assert len(late_write) == 1
        assert b.writes == []
        await until(lambda: b.election.is_leader)
        await b.stop()

    run(scenario())


def test_a_crashed_leader_is_replaced_within_its_lease_plus_a_retry():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(10)
        b = Candidate(cluster, "b").start()
        await settle(10)

        def dead(method, path):
            return Unreachable("crashed")

        a.transport.before = dead
        start = loop_time()
        await until(lambda: b.election.is_leader, within_seconds=30)
        assert 13 <= loop_time() - start <= 20
        await a.stop()
        await b.stop()

    run(scenario())


@pytest.mark.parametrize("how", ["refused", "silent", "answers lost"])
def test_a_leader_cut_off_stops_writing_before_another_can_start(how):
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(10)
        b = Candidate(cluster, "b").start()
        await settle(10)

        async def cut(method, path):
            if how != "refused":
                await asyncio.sleep(1e5)
            return Unreachable("cut off")

        if how == "answers lost":
            a.transport.after = cut
            before = len(cluster.writes)
        else:
            a.transport.before = cut
        await settle(12)
        assert not a.election.is_leader
        assert a.told == ["started", "stopped"]
        if how == "answers lost":
            assert len(cluster.writes) > before  # what it wrote did arrive
        a.transport.before = a.transport.after = None
        await until(lambda: a.election.is_leader or b.election.is_leader, within_seconds=60)
        await settle(60)
        if b.writes:  # never a write of one between two of the other
            assert max(a.writes) < min(b.writes) or min(a.writes) > max(b.writes)
        assert sum(c.election.is_leader for c in (a, b)) == 1
        await a.stop()
        await b.stop()

    run(scenario())


def test_a_paused_leader_wakes_up_knowing_that_it_leads_no_more():
    """The process stood still (stopped, or the laptop slept): nothing of it ran, time went on."""

    async def scenario():
        cluster = FakeCluster()
        skipped = [0.0]
        a = Candidate(cluster, "a", now=lambda: loop_time() + skipped[0]).start()
        await settle(10)
        assert a.election.is_leader
        skipped[0] = 11.0  # its timers have not fired yet, and its lease still reads "a"
        assert not a.election.is_leader
        with pytest.raises(LostLeadership, match="a leads no more"):
            await a.client.create(WIDGETS, a.widget())
        await a.client.list(WIDGETS)  # reading needs no lease
        await settle(3)
        assert a.told[0] == "started"
        assert "stopped" in a.told
        await a.stop()

    run(scenario())


def test_a_write_in_flight_when_the_lease_runs_out_is_cut_off():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a")
        outcome = []

        async def one_slow_write():
            try:
                await a.client.create(WIDGETS, a.widget())
            except Unreachable as error:
                outcome.append((loop_time(), str(error)))
                raise

        async def slow(method, path):
            await asyncio.sleep(1e5)

        a.start(one_slow_write)
        a.transport.before = lambda method, path: slow(method, path) if "widgets" in path else None
        started = loop_time()
        await settle(20)  # renewals go on, but the write was given what was left when it began
        assert [round(time - started) for time, _ in outcome] == [10]
        assert "no answer" in outcome[0][1]
        assert cluster.content("widgets") == {}
        with pytest.raises(Unreachable):
            await a.task
        await a.stop()

    run(scenario())


def test_a_renewal_counts_from_when_it_was_sent_not_from_when_its_answer_came():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a")
        slow = 4.0

        async def late(method, path):
            if "leases" in path and method != "GET":
                await asyncio.sleep(slow)

        a.transport.after = late
        a.start()
        await until(lambda: a.election.is_leader)
        assert a.election.write_seconds_left() <= 10 - slow
        await a.stop()

    run(scenario())


def test_another_in_the_lease_ends_leading_at_once():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(5)
        spec = {**lease_of(cluster), "holderIdentity": "usurper", "renewTime": "now"}
        cluster.put("leases", "ns", "operator", spec=spec)
        last = loop_time()
        await until(lambda: "stopped" in a.told)
        assert loop_time() - last <= 2.5
        assert all(write <= last + 2.5 for write in a.writes)
        await a.stop()
        assert lease_of(cluster)["holderIdentity"] == "usurper"

    run(scenario())


def test_a_renewal_whose_answer_was_lost_does_not_end_leading():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(5)
        lost = iter([True, True])

        def lose(method, path):
            if method == "PUT" and "leases" in path and next(lost, False):
                return Unreachable("answer lost")
            return None

        a.transport.after = lose
        await settle(60)
        assert a.told == ["started"]
        assert a.election.is_leader
        await a.stop()

    run(scenario())


def test_a_lease_that_somebody_deleted_is_made_anew_without_a_break():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(5)
        cluster.remove("leases", "ns", "operator")
        await settle(10)
        assert a.told == ["started"]
        assert lease_of(cluster)["holderIdentity"] == "a"
        await a.stop()

    run(scenario())


def test_after_a_loss_it_competes_again():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(5)
        a.transport.before = lambda *_: status_answer(500, "InternalError")
        await until(lambda: a.told == ["started", "stopped"])
        a.transport.before = None
        await until(lambda: a.told == ["started", "stopped", "started"])
        await a.stop()

    run(scenario())


def test_work_that_ends_or_fails_ends_the_election_and_releases():
    async def scenario():
        cluster = FakeCluster()

        async def done():
            await asyncio.sleep(1)

        async def fails():
            raise ZeroDivisionError("a bug in the work")

        a = Candidate(cluster, "a").start(done)
        await asyncio.wait_for(a.task, 10)
        assert lease_of(cluster)["holderIdentity"] == ""
        b = Candidate(cluster, "b").start(fails)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(b.task, 10)
        assert lease_of(cluster)["holderIdentity"] == ""

    run(scenario())


def test_work_that_cannot_be_stopped_after_a_loss_ends_the_process_not_the_promise():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a")
        deaf = True

        async def deaf_work():
            while deaf:
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    continue

        a.start(deaf_work)
        await settle(5)
        a.transport.before = lambda *_: Unreachable("cut off")
        await settle(40)
        with pytest.raises(LostLeadership, match="must be restarted"):
            await a.task
        assert not a.election.is_leader
        deaf = False
        await settle(5)

    run(scenario())


def test_the_same_identity_goes_on_at_once_after_a_crash():
    async def scenario():
        cluster = FakeCluster()
        a = Candidate(cluster, "a").start()
        await settle(5)
        a.transport.before = lambda *_: Unreachable("killed")
        a.task.cancel()
        await asyncio.gather(a.task, return_exceptions=True)
        assert lease_of(cluster)["holderIdentity"] == "a"
        again = Candidate(cluster, "a").start()
        await settle(1)
        assert again.election.is_leader
        await again.stop()

    run(scenario())


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_times_that_leave_no_gap_are_refused(times):
    lease, deadline, retry = times
    with pytest.raises(ValueError, match="retry < renew deadline < lease"):
        Candidate(
            FakeCluster(),
            "a",
            lease_seconds=lease,
            renew_deadline_seconds=deadline,
            retry_seconds=retry,
        )
