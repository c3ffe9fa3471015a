"""Which cluster a command speaks to."""

from pathlib import Path

import pytest

from clusterops.cli.connection import Target, local_folder
from clusterops.local.state_folder import StateFolder


@pytest.fixture
def home(tmp_path: Path) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    folder.create()
    folder.kubeconfig.write_text("{}")
    return folder


def test_local_mode_is_used_while_it_is_up(home: StateFolder) -> None:
    environment = {"CLUSTEROPS_HOME": str(home.root)}
    assert local_folder(Target(), environment) is None
    with home.locked():
        assert local_folder(Target(), environment) == home
    assert local_folder(Target(), environment) is None


def test_a_cluster_that_is_named_goes_before_local_mode(home: StateFolder) -> None:
    by_default = {"XDG_STATE_HOME": str(home.root.parent)}
    (home.root.parent / "clusterops").symlink_to(home.root)
    with home.locked():
        assert local_folder(Target(), by_default) is not None
        assert local_folder(Target(), {**by_default, "KUBECONFIG": "/x"}) is None
        assert local_folder(Target(kubeconfig=Path("/x")), by_default) is None
        assert local_folder(Target(context="prod"), by_default) is None


def test_a_state_folder_that_is_named_goes_before_the_environments_kubeconfig(home) -> None:
    environment = {"CLUSTEROPS_HOME": str(home.root), "KUBECONFIG": "/x"}
    with home.locked():
        assert local_folder(Target(), environment) == home
