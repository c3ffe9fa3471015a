"""Torch in tests: one thread, so that neighbours are not disturbed and numbers repeat."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
