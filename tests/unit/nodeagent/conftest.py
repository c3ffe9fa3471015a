"""Fixtures of the node agent's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kube_cluster import FakeTransport
from support.nodeagent_cluster import PodCluster
from support.nodeagent_shim import ShimRun, end_processes_of, shim_run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ShimRun]:
    """A run folder for one shim; whatever it started is ended afterwards."""
    with shim_run(tmp_path) as found:
        yield found


@pytest.fixture
def no_leftovers(tmp_path: Path) -> Iterator[None]:
    """Ends the processes that a failing test left behind."""
    yield
    end_processes_of(tmp_path)


@pytest.fixture
def cluster() -> PodCluster:
    return PodCluster()


@pytest.fixture
def transport(cluster: PodCluster) -> FakeTransport:
    return FakeTransport(cluster)
