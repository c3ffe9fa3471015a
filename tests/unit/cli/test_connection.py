"""Which cluster a command speaks to."""

from pathlib import Path

import pytest

from clusterops.cli import errors
from clusterops.cli.connection import Target, asleep, local_folder, run
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


def test_its_own_kubeconfig_names_local_mode(home: StateFolder) -> None:
    (home.root.parent / "clusterops").symlink_to(home.root)
    own = home.root.parent / "clusterops" / "kubeconfig"
    by_default = {"XDG_STATE_HOME": str(home.root.parent)}
    with home.locked():
        assert local_folder(Target(), {**by_default, "KUBECONFIG": str(own)}) is not None
        assert local_folder(Target(kubeconfig=own), by_default) is not None


def test_a_state_folder_that_is_named_goes_before_the_environments_kubeconfig(home) -> None:
    environment = {"CLUSTEROPS_HOME": str(home.root), "KUBECONFIG": "/x"}
    with home.locked():
        assert local_folder(Target(), environment) == home


def test_local_mode_is_asleep_when_it_is_down_and_may_have_been_meant(home: StateFolder) -> None:
    by_home = {"CLUSTEROPS_HOME": str(home.root), "KUBECONFIG": "/x"}
    assert asleep(Target(), by_home) == home
    with home.locked():
        assert asleep(Target(), by_home) is None, "it is up"
    (home.root.parent / "clusterops").symlink_to(home.root)
    by_default = {"XDG_STATE_HOME": str(home.root.parent)}
    own = home.root.parent / "clusterops" / "kubeconfig"
    assert asleep(Target(), by_default) is not None
    assert asleep(Target(), {**by_default, "KUBECONFIG": str(own)}) is not None
    assert asleep(Target(), {**by_default, "KUBECONFIG": "/x"}) is None
    assert asleep(Target(kubeconfig=Path("/x")), by_default) is None
    assert asleep(Target(context="prod"), by_default) is None
    home.kubeconfig.unlink()
    assert asleep(Target(), by_default) is None, "there never was one"


@pytest.mark.parametrize("config", ["", "apiVersion: v1\nkind: Config\n"])
def test_any_error_after_down_names_local_mode_and_the_way_back(
    home: StateFolder, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLUSTEROPS_HOME", str(home.root))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(config)

    async def work(session: object) -> None:
        raise AssertionError(session)

    assert errors.guarded(lambda: run(Target(), work)) == errors.UNREACHABLE
    said = capsys.readouterr().err
    assert f"note: local mode in {home.root} is down; start it with: clusterops up" in said
