"""One thread for torch: models here are small, and threads that wait for each other cost more."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
