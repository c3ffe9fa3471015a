"""The tokens file."""

import json
from pathlib import Path

import pytest

from clusterops.apiserver.access import AccessError, load_tokens


def _file(tmp_path: Path, content: object, mode: int = 0o600) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return path


def test_tokens_name_their_users(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    path = _file(tmp_path, {token: {"user": "ann", "groups": ["team"]}})
    tokens = load_tokens(path)
    user = tokens.user(token)
    assert user is not None
    assert (user.name, user.groups) == ("ann", ("team", "system:authenticated"))
    assert tokens.user(token + "x") is None
    assert tokens.user("") is None


def test_a_file_that_others_may_read_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="chmod 600"):
        load_tokens(_file(tmp_path, {}, mode=0o644))


@pytest.mark.parametrize(
    "content", ["", "[]", {"short": {"user": "x"}}, {"long-enough-token-1": {"groups": []}},
                {"long-enough-token-1": {"user": "x", "admin": True}}]
)  # fmt: skip
def test_a_file_that_cannot_be_trusted_is_refused_by_name(tmp_path: Path, content: object) -> None:
    with pytest.raises(AccessError, match=r"tokens\.json"):
        load_tokens(_file(tmp_path, content))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot read"):
        load_tokens(tmp_path / "tokens.json")
