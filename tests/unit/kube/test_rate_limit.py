"""Token buckets: burst, rate, order of waiters, given-back tokens."""

import asyncio

import pytest
from support.kube_virtual_time import run, settle

from clusterops.kube.rate_limit import TokenBucket


def test_a_burst_passes_at_once_and_the_rest_at_the_rate():
    async def scenario():
        loop = asyncio.get_running_loop()
        bucket = TokenBucket(rate=10, burst=5)
        start = loop.time()
        for _ in range(15):
            await bucket.acquire()
        assert loop.time() - start == pytest.approx(1.0)

    run(scenario())


def test_tokens_never_exceed_the_burst():
    now = [0.0]
    bucket = TokenBucket(rate=10, burst=3, now=lambda: now[0])
    now[0] = 1e9
    assert [bucket.try_take() for _ in range(4)] == [True, True, True, False]


def test_waiters_are_served_in_order():
    async def scenario():
        bucket = TokenBucket(rate=1, burst=1)
        served: list[int] = []

        async def one(number: int) -> None:
            await bucket.acquire()
            served.append(number)

        await asyncio.gather(*(one(number) for number in range(5)))
        assert served == [0, 1, 2, 3, 4]

    run(scenario())


def test_a_cancelled_waiter_gives_its_token_back():
    async def scenario():
        bucket = TokenBucket(rate=1, burst=1)
        await bucket.acquire()
        waiting = asyncio.create_task(bucket.acquire())
        await settle()
        waiting.cancel()
        await settle()
        assert bucket.reserve() == pytest.approx(1.0)

    run(scenario())


@pytest.mark.parametrize(("rate", "burst"), [(0, 5), (-1, 5), (5, 0)])
def test_a_bucket_that_would_never_let_anything_pass_is_refused(rate, burst):
    with pytest.raises(ValueError, match="rate > 0"):
        TokenBucket(rate, burst)
