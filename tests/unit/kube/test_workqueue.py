"""The work queue: each key once, never in two workers, delays and back-off, draining."""

import asyncio
import random

import pytest
from support.kube_virtual_time import run, settle

from clusterops.kube.rate_limit import TokenBucket
from clusterops.kube.workqueue import ShutDown, WorkQueue


def test_a_key_added_twice_is_handed_out_once():
    async def scenario():
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("a")
        queue.add("b")
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert queue.state().ready == 0

    run(scenario())


def test_a_key_added_during_its_work_is_handed_out_again_only_after_done():
    async def scenario():
        queue = WorkQueue[str]()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        queue.add("a")
        waiting = asyncio.create_task(queue.get())
        await settle()
        assert not waiting.done()
        queue.done(key)
        assert await waiting == "a"
        queue.done("a")
        assert queue.state()[:3] == (0, 0, 0)

    run(scenario())


def test_of_several_delays_the_earliest_counts():
    async def scenario():
        loop = asyncio.get_running_loop()
        queue = WorkQueue[str]()
        start = loop.time()
        queue.add_after("a", 50)
        queue.add_after("a", 10)
        queue.add_after("a", 30)
        queue.add_after("b", 20)
        assert await queue.get() == "a"
        assert loop.time() - start == pytest.approx(10)
        queue.done("a")
        assert await queue.get() == "b"
        assert loop.time() - start == pytest.approx(20)
        await settle(100)
        assert queue.state().ready == 0  # the two later delays of "a" are gone

    run(scenario())


def test_a_delay_of_nothing_or_less_is_now():
    async def scenario():
        queue = WorkQueue[str]()
        queue.add_after("a", 0)
        queue.add_after("b", -5)
        assert [await queue.get(), await queue.get()] == ["a", "b"]

    run(scenario())


def test_retries_of_a_key_wait_longer_each_time_up_to_the_limit_and_forget_resets():
    async def scenario():
        queue = WorkQueue[str](base_delay_seconds=1, max_delay_seconds=10, jitter=0)
        delays = [queue.retry("a") for _ in range(6)]
        assert delays == [1, 2, 4, 8, 10, 10]
        assert queue.failures("a") == 6
        queue.forget("a")
        assert queue.retry("a") == 1
        assert queue.retry("b") == 1
        assert queue.retry("b", at_least_seconds=60) == 60

    run(scenario())


def test_after_very_many_failures_the_delay_is_still_a_number():
    async def scenario():
        queue = WorkQueue[str](jitter=0, retry_bucket=TokenBucket(1e9, 1e9))
        for _ in range(3000):
            last = queue.retry("a")
        assert last == 300

    run(scenario())


def test_jitter_lengthens_and_never_shortens():
    async def scenario():
        queue = WorkQueue[int](base_delay_seconds=1, jitter=0.2, rng=random.Random(3))
        delays = [queue.retry(key) for key in range(100)]
        assert all(1 <= delay <= 1.2 for delay in delays)
        assert len(set(delays)) > 90

    run(scenario())


def test_the_bucket_holds_back_a_storm_of_retries_of_many_keys():
    async def scenario():
        queue = WorkQueue[int](
            base_delay_seconds=0.001, jitter=0, retry_bucket=TokenBucket(rate=10, burst=5)
        )
        delays = [queue.retry(key) for key in range(25)]
        assert max(delays[:5]) == pytest.approx(0.001)
        assert delays[-1] == pytest.approx(2.0)

    run(scenario())


def test_shut_down_hands_out_what_is_ready_and_then_ends_every_waiter():
    async def scenario():
        queue = WorkQueue[str]()
        waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
        await settle()
        queue.shut_down()
        assert [type(e) for e in await asyncio.gather(*waiting, return_exceptions=True)] == [
            ShutDown,
            ShutDown,
        ]

        queue = WorkQueue[str]()
        for key in ("a", "b"):
            queue.add(key)
        queue.add_after("later", 5)
        held = await queue.get()
        queue.add(held)
        queue.shut_down()
        queue.add("too late")
        assert not await queue.join(1.0)
        assert await queue.get() == "b"
        queue.done("b")
        queue.done(held)
        assert await queue.get() == held  # it had changed while being worked on
        queue.done(held)
        with pytest.raises(ShutDown):
            await queue.get()
        assert await queue.join(1.0)

    run(scenario())


def test_shut_down_without_draining_drops_what_nobody_works_on():
    async def scenario():
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("b")
        held = await queue.get()
        queue.shut_down(drain=False)
        with pytest.raises(ShutDown):
            await queue.get()
        queue.done(held)
        assert await queue.join(1.0)

    run(scenario())


def test_a_cancelled_waiter_passes_its_key_on():
    async def scenario():
        queue = WorkQueue[str]()
        first = asyncio.create_task(queue.get())
        second = asyncio.create_task(queue.get())
        await settle()
        queue.add("a")  # wakes the first ...
        first.cancel()  # ... which is cancelled before it runs
        assert await second == "a"

    run(scenario())


def test_the_state_tells_ages():
    async def scenario():
        queue = WorkQueue[str]()
        queue.add("a")
        queue.add("b")
        queue.add_after("c", 100)
        await queue.get()
        await settle(7)
        state = queue.state()
        assert (state.ready, state.delayed, state.processing) == (1, 1, 1)
        assert state.oldest_ready_seconds == pytest.approx(7)
        assert state.longest_processing_seconds == pytest.approx(7)

    run(scenario())
