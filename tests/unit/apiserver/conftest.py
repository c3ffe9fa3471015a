"""A server without a network for each test that asks for one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.apiserver_world import World, running_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with running_world(tmp_path / "state") as running:
        yield running
