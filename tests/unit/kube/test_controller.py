"""The controller: what becomes of a key after each outcome, workers, stopping, no half-alive state."""

import asyncio
import logging

import pytest
from support.kube_cluster import WIDGETS, FakeCluster, FakeTransport
from support.kube_virtual_time import run, settle, until

from clusterops.kube.client import Client
from clusterops.kube.controller import Controller, run_until
from clusterops.kube.errors import Conflict, Invalid, ServerBusy, Unreachable
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Store
from clusterops.kube.workqueue import WorkQueue


class Bench:
    """A controller whose reconcile does what the test scripts, and the times of its calls."""

    def __init__(self, *outcomes, workers=1, **options):
        self.outcomes = list(outcomes)
        self.calls = []
        self.queue = WorkQueue(base_delay_seconds=1.0, jitter=0.0)
        self.controller = Controller(
            "widgets", self.queue, self.reconcile, workers=workers, **options
        )

    async def reconcile(self, key):
        self.calls.append((key, round(asyncio.get_running_loop().time() - self.start, 3)))
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, BaseException):
            raise outcome
        if callable(outcome):
            return await outcome()
        return outcome

    async def __aenter__(self):
        self.start = asyncio.get_running_loop().time()
        self.task = asyncio.create_task(self.controller.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def times(self):
        return [time for _, time in self.calls]


def busy(retry_after):
    error = ServerBusy(429, "TooManyRequests", "slow down")
    error.retry_after_seconds = retry_after
    return error


@pytest.mark.parametrize(
    ("outcomes", "times"),
    [
        ([None], [0]),
        ([30.0, 5.0], [0, 30, 35]),
        ([Conflict(409, "Conflict", "")] * 3, [0, 1, 3, 7]),
        ([Unreachable("refused")], [0, 1]),
        ([busy(45.0)], [0, 45]),
        ([Invalid(422, "Invalid", "spec: wrong")], [0, 300]),
        ([RuntimeError("a bug")] * 2, [0, 1, 3]),
        (
            [RuntimeError("a bug"), RuntimeError("a bug"), 10.0, RuntimeError("x")],
            [0, 1, 3, 13, 14],
        ),
    ],
    ids=["done", "again later", "conflict", "no answer", "busy", "permanent", "bug", "reset"],
)
def test_what_becomes_of_a_key(outcomes, times):
    async def scenario():
        async with Bench(*outcomes) as bench:
            bench.queue.add("a")
            await settle(1000)
            assert bench.times() == times

    run(scenario())


def test_a_bug_with_one_key_is_logged_counted_and_does_not_stop_the_others(caplog):
    async def scenario():
        async with Bench(ValueError("no\nsuch thing")) as bench:
            bench.queue.add("bad")
            bench.queue.add("good")
            await settle(100)
            assert [key for key, _ in bench.calls] == ["bad", "good", "bad"]
            state = bench.controller.state()
            assert state.errors == {"ValueError": 1}
            assert state.reconciles == 3
            assert state.last_error == "widgets bad: ValueError: no\\nsuch thing"
            assert state.healthy()

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert "Traceback" in caplog.text


def test_a_reconcile_that_hangs_is_cut_off_and_tried_again():
    async def hang():
        await asyncio.sleep(1e5)

    async def scenario():
        async with Bench(hang, timeout_seconds=20.0) as bench:
            bench.queue.add("a")
            await settle(100)
            assert bench.times() == [0, 21]
            assert bench.controller.state().errors == {"TimeoutError": 1}
            assert bench.controller.state().slowest_seconds == pytest.approx(20)

    run(scenario())


def test_workers_work_side_by_side_but_never_on_the_same_key():
    async def scenario():
        working = {}
        most = 0

        async def reconcile(key):
            nonlocal most
            assert key not in working
            working[key] = True
            most = max(most, len(working))
            queue.add(key) if key == "busy" and len(seen) < 30 else None
            seen.append(key)
            await asyncio.sleep(1)
            del working[key]

        seen = []
        queue = WorkQueue()
        controller = Controller("c", queue, reconcile, workers=3)
        task = asyncio.create_task(controller.run())
        for number in range(9):
            queue.add(f"k{number}")
        queue.add("busy")
        await settle(60)
        assert most == 3
        assert set(seen) == {*(f"k{n}" for n in range(9)), "busy"}
        queue.shut_down()
        await asyncio.wait_for(task, 5)
        assert not controller.state().running

    run(scenario())


def test_a_stuck_key_makes_the_controller_unhealthy():
    async def hang():
        await asyncio.sleep(1e5)

    async def scenario():
        async with Bench(hang, timeout_seconds=1e6) as bench:
            assert not Controller("idle", WorkQueue(), bench.reconcile).state().healthy()
            bench.queue.add("a")
            await settle(100)
            assert bench.controller.state().healthy()
            await settle(600)
            assert not bench.controller.state().healthy()

    run(scenario())


def test_no_worker_is_refused():
    with pytest.raises(ValueError, match="needs a worker"):
        Controller("c", WorkQueue(), None, workers=0)


class Runtime:
    """One reflector and one controller over a fake cluster, under `run_until`."""

    def __init__(self, reconcile):
        self.cluster = FakeCluster()
        self.transport = FakeTransport(self.cluster)
        self.store = Store()
        self.queue = WorkQueue()
        self.reflector = Reflector(
            Client(self.transport), WIDGETS, self.store, dict, self.queue.add
        )
        self.controller = Controller("c", self.queue, reconcile)
        self.stop = asyncio.Event()

    def start(self, **options):
        return asyncio.create_task(
            run_until(
                self.stop,
                reflectors=[self.reflector],
                controllers=[self.controller],
                **options,
            )
        )


def test_controllers_start_only_when_the_stores_are_full():
    async def scenario():
        seen = []

        async def reconcile(key):
            seen.append((key, len(runtime.store)))

        runtime = Runtime(reconcile)
        for number in range(5):
            runtime.cluster.put("widgets", "ns", f"w{number}")
        runtime.transport.script.extend([Unreachable("not yet")] * 2)
        task = runtime.start()
        await until(lambda: len(seen) == 5)
        assert {size for _, size in seen} == {5}
        runtime.stop.set()
        await asyncio.wait_for(task, 5)

    run(scenario())


def test_at_a_stop_the_keys_in_work_are_finished_and_late_ones_cut_off():
    async def scenario():
        finished = []

        async def reconcile(key):
            await asyncio.sleep(5 if key[1] == "quick" else 500)
            finished.append(key[1])

        runtime = Runtime(reconcile)
        runtime.cluster.put("widgets", "ns", "quick")
        runtime.cluster.put("widgets", "ns", "slow")
        task = runtime.start(drain_seconds=8)
        await settle(1)
        runtime.stop.set()
        loop = asyncio.get_running_loop()
        start = loop.time()
        await task
        assert finished == ["quick"]
        assert loop.time() - start == pytest.approx(8)

    run(scenario())


def test_a_stop_before_the_first_list_ends_at_once():
    async def scenario():
        runtime = Runtime(None)
        runtime.transport.script.extend([Unreachable("never")] * 10_000)
        task = runtime.start()
        await settle(5)
        runtime.stop.set()
        await asyncio.wait_for(task, 5)

    run(scenario())


def test_a_first_list_that_does_not_come_is_an_error_that_says_why():
    async def scenario():
        runtime = Runtime(None)
        runtime.transport.script.extend([Unreachable("refused by 127.0.0.1")] * 10_000)
        with pytest.raises(TimeoutError, match=r"widgets were not listed.*refused by 127"):
            await runtime.start(sync_timeout_seconds=30)

    run(scenario())


def test_a_watcher_that_dies_takes_everything_down_with_its_error():
    async def scenario():
        async def reconcile(key):
            await asyncio.sleep(0)

        runtime = Runtime(reconcile)
        task = runtime.start()
        await runtime.reflector.wait_synced(5)
        await settle(1)

        def explode(event):
            raise ZeroDivisionError("a bug in the reflector")

        runtime.transport.events = explode
        runtime.cluster.put("widgets", "ns", "a")
        with pytest.raises(ZeroDivisionError, match="a bug in the reflector"):
            await asyncio.wait_for(task, 200)
        assert not runtime.controller.state().running

    run(scenario())
