"""A clean environment for sessions, and an operator to report to."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.train_operator import Operator


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of a real job, and everything put back that sessions touch."""
    import os

    for name in list(os.environ):
        if name.startswith(("CLUSTEROPS_", "PET_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)
    generator = random.getstate()
    handler = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is handler, "a session left its signal handler"
    random.setstate(generator)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    """A running operator, and the environment of its job's process."""
    folder = tmp_path / "operator"
    folder.mkdir()
    running = Operator(folder)
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    yield running
    running.close()
