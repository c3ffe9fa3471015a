"""What is shown again every second clears a screen where there is one, and no pipe."""

import io

import pytest

from clusterops.cli import queue


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "cleared"), [(Screen(), True), (io.StringIO(), False)])
async def test_only_a_terminal_is_cleared(monkeypatch, out, cleared) -> None:
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr(queue, "REFRESH_SECONDS", 0)
    shown = queue.rounds(True)
    assert [await anext(shown), await anext(shown)] == [cleared, cleared]
    await shown.aclose()


async def test_what_is_shown_once_clears_nothing(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    assert [again async for again in queue.rounds(False)] == [False]
