"""How a running `up` heeds those who want it to end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from clusterops.cli import local


@pytest.fixture
async def wishes() -> AsyncIterator[tuple[asyncio.Event, asyncio.Event]]:
    """To stop, and to hurry; this process heeds signals while the test lasts."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    local._heed_signals(stop, hurry)
    yield stop, hurry
    for number in (signal.SIGINT, signal.SIGTERM, local.HURRY):
        asyncio.get_running_loop().remove_signal_handler(number)


async def told(wish: asyncio.Event) -> None:
    async with asyncio.timeout(20):
        await wish.wait()


async def test_the_first_term_asks_to_stop_and_the_second_to_hurry(wishes) -> None:
    stop, hurry = wishes
    os.kill(os.getpid(), signal.SIGTERM)
    await told(stop)
    assert not hurry.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await told(hurry)


async def test_one_signal_is_enough_to_end_at_once(wishes) -> None:
    stop, hurry = wishes
    os.kill(os.getpid(), local.HURRY)
    await told(hurry)
    assert stop.is_set()
