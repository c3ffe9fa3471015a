"""The control plane that the tests of this folder share: one in a run, whatever the number of workers.

`make test-cluster` builds it and runs these tests. Elsewhere they are skipped and say so. To keep one
between runs while writing a test, `python tests/support/controlplane_session.py --hold FOLDER` in
another terminal and CLUSTEROPS_TEST_CLUSTER=FOLDER here.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.controlplane import ControlPlane
from support.controlplane_build import built
from support.controlplane_session import joined
from support.controlplane_tenant import Tenant

ASKED = "CLUSTEROPS_TEST_CLUSTER"
NOT_ASKED = "the tests on the real control plane are run by `make test-cluster`"
NOT_BUILT = "the real control plane is not built: `make controlplane` builds it"


@pytest.fixture(scope="session")
def binaries() -> Path:
    """Where the programs of the control plane are."""
    if not os.environ.get(ASKED):
        pytest.skip(NOT_ASKED)
    found = built()
    if found is None:
        pytest.skip(NOT_BUILT)
    return found


@pytest.fixture(scope="session")
def plane(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Kubernetes with Kueue, our manifests, and our operator under its service account."""
    base = tmp_path_factory.getbasetemp()
    # With several workers each has a folder of its own in that of the run.
    run = base.parent if base.name.startswith("popen-") else base
    asked = os.environ[ASKED]
    with joined(Path(asked) if "/" in asked else run / "controlplane", binaries) as found:
        yield found


@pytest.fixture
def tenant(plane: ControlPlane, tmp_path: Path) -> Iterator[Tenant]:
    """A namespace with a queue of four GPUs, and no node yet."""
    with Tenant(plane, tmp_path) as found:
        yield found
