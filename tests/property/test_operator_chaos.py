"""Random lives of a small cluster: whatever crashes, lags or fails, the laws hold and all jobs end.

The laws (`support.operator_world.Laws`, checked at every write): never pods of two attempts of one
job alive; a pod is created only under held quota; quota is freed only when no pod is alive; a
release only of what was evicted, with Admitted and PodsReady reset.
"""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import operator_chaos


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_any_life_keeps_the_laws_and_ends(seed: int) -> None:
    asyncio.run(operator_chaos.live(seed))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_many_lives_keep_the_laws_and_end(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            asyncio.run(operator_chaos.live(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
