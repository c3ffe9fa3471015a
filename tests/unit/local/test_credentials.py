"""Tokens and kubeconfigs: kept from start to start, one identity a part, closed to others."""

import base64
import json
import stat
from pathlib import Path

import pytest

from clusterops.local import credentials
from clusterops.local.state_folder import StateFolder


def test_each_part_has_a_token_of_its_own(tmp_path: Path):
    tokens = credentials.ensure_tokens(StateFolder(tmp_path), ["operator", "queueing"])
    assert sorted(tokens) == ["admin", "clusterops:operator", "clusterops:queueing"]
    assert len(set(tokens.values())) == 3


def test_tokens_survive_a_restart_and_new_parts_are_added(tmp_path: Path):
    folder = StateFolder(tmp_path)
    first = credentials.ensure_tokens(folder, ["operator"])
    second = credentials.ensure_tokens(folder, ["operator", "agent-local-0"])
    assert first.items() <= second.items()


@pytest.mark.parametrize("content", ["", "[]", '{"t": 1}', '{"t": {}}'])
def test_an_unreadable_token_file_is_made_anew(tmp_path: Path, content: str):
    folder = StateFolder(tmp_path)
    folder.tokens.write_text(content)
    tokens = credentials.ensure_tokens(folder, [])
    assert json.loads(folder.tokens.read_text())[tokens["admin"]]["user"] == "admin"


def test_only_the_person_is_in_the_masters_group(tmp_path: Path):
    folder = StateFolder(tmp_path)
    credentials.ensure_tokens(folder, ["operator"])
    groups = {e["user"]: e["groups"] for e in json.loads(folder.tokens.read_text()).values()}
    assert groups == {"admin": ["system:masters"], "clusterops:operator": ["clusterops:parts"]}


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path):
    folder = StateFolder(tmp_path)
    credentials.ensure_tokens(folder, [])
    credentials.ensure_operator_key(folder.operator_key)
    (tmp_path / "ca.crt").write_text("authority")
    credentials.write_kubeconfig(
        folder.kubeconfig,
        server="https://127.0.0.1:1",
        authority=tmp_path / "ca.crt",
        user="admin",
        token="t",
    )
    for path in (folder.tokens, folder.operator_key, folder.kubeconfig):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_operator_key_never_changes(tmp_path: Path):
    key = tmp_path / "operator.key"
    credentials.ensure_operator_key(key)
    before = key.read_text()
    credentials.ensure_operator_key(key)
    assert key.read_text() == before


def test_a_kubeconfig_carries_the_authority_inside(tmp_path: Path):
    (tmp_path / "ca.crt").write_bytes(b"authority")
    path = tmp_path / "kubeconfig"
    credentials.write_kubeconfig(
        path, server="https://127.0.0.1:7", authority=tmp_path / "ca.crt", user="admin", token="t"
    )
    config = json.loads(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"authority"
    assert cluster["server"] == "https://127.0.0.1:7"
    assert config["users"][0]["user"] == {"token": "t"}
