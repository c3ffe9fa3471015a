"""Tokens of attempts, and the key they come from."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterops.operator import tokens

KEY = b"k" * 32


@given(uid=st.uuids().map(str), attempt=st.integers(1, 10**9))
def test_a_token_speaks_for_its_attempt_only(uid: str, attempt: int) -> None:
    token = tokens.issue(KEY, uid, attempt)
    assert tokens.verify(KEY, token) == (uid, attempt)
    assert tokens.verify(b"x" * 32, token) is None
    assert tokens.verify(KEY, token.replace(f".{attempt}.", f".{attempt + 1}.")) is None


@given(st.text(max_size=200))
def test_no_text_is_taken_for_a_token(text: str) -> None:
    assert tokens.verify(KEY, text) is None


def test_the_key_is_made_once_and_for_the_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "operator.key"
    first = tokens.read_or_create_key(path)
    assert tokens.read_or_create_key(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_no_key_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "operator.key"
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match="remove the file"):
        tokens.read_or_create_key(path)
