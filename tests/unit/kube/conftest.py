"""A certificate authority shared by the room's tests."""

import pytest
from support.kube_http import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("pki"))
