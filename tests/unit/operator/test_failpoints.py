"""Stopping the operator at a named write."""

import pytest

from clusterops.operator import failpoints


def test_without_the_variable_nothing_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(failpoints.ENVIRONMENT, raising=False)
    assert failpoints.from_environment() is failpoints.unarmed


@pytest.mark.parametrize("armed", ["create-pod", "during:create-pod", "before:no-such-write:1"])
def test_a_point_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, armed: str
) -> None:
    monkeypatch.setenv(failpoints.ENVIRONMENT, armed)
    with pytest.raises(ValueError, match="write point"):
        failpoints.from_environment()


def test_it_kills_at_the_nth_passage_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(failpoints.os, "kill", lambda *args: kills.append(args))
    monkeypatch.setenv(failpoints.ENVIRONMENT, "after:release-quota:2")
    failpoint = failpoints.from_environment()
    for passage in ("before:release-quota", "after:release-quota", "after:create-pod"):
        failpoint(passage)
    assert not kills
    failpoint("after:release-quota")
    assert len(kills) == 1
