"""How fast each GPU computed and moved memory, beside what it did before and what its siblings do.

A board that is right and slow is not well. It is compared with itself on earlier checks that passed;
one that was never checked here, with the others of the node. The history is a small JSON file on the
node, so that it outlives pods, reboots and the operator.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Figures = dict[str, float]
"""One GPU's figures, by name; more is better."""
History = dict[str, list[Figures]]
"""Each GPU's figures of checks that passed, by its UUID, oldest first."""

SLOWER_THAN_BEFORE = 0.1
"""A share by which the same board may vary from one check to the next."""
SLOWER_THAN_SIBLINGS = 0.15
"""Boards of one kind vary more than one board does."""
KEPT_CHECKS = 20
KEPT_GPUS = 64
_VERSION = 1


class HistoryUnreadable(Exception):
    """The file holds no history; the text says why. The check goes on without it."""


def slow(now: Mapping[str, Figures], before: History) -> list[str]:
    """What is slower than it should be, in words."""
    return [
        fault
        for gpu, figures in now.items()
        for name, value in figures.items()
        if (fault := _slow(gpu, name, value, now, before)) is not None
    ]


def _slow(
    gpu: str, name: str, value: float, now: Mapping[str, Figures], before: History
) -> str | None:
    own = [each[name] for each in before.get(gpu, ()) if name in each]
    others = [each[name] for other, each in now.items() if other != gpu and name in each]
    if own:
        usual, share, whose = median(own), SLOWER_THAN_BEFORE, f"its own of {len(own)} checks"
    elif len(others) > 1:
        usual, share, whose = (
            median(others),
            SLOWER_THAN_SIBLINGS,
            f"that of {len(others)} siblings",
        )
    else:
        return None
    if value >= usual * (1 - share):
        return None
    return (
        f"{gpu}: {name} is {value:g}, {100 * (1 - value / usual):.0f} % below {whose} ({usual:g})"
    )


def grown(before: History, now: Mapping[str, Figures]) -> History:
    """The history with one more check that passed; boards that were not seen for long go first."""
    kept = {gpu: checks for gpu, checks in before.items() if gpu not in now}
    kept |= {gpu: [*before.get(gpu, ()), figures][-KEPT_CHECKS:] for gpu, figures in now.items()}
    return dict(list(kept.items())[-KEPT_GPUS:])


def read(file: Path) -> History:
    """What was kept, empty when nothing was. Raises HistoryUnreadable."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise HistoryUnreadable(f"cannot read {file}: {error}") from error
    gpus = told.get("gpus") if isinstance(told, dict) else None
    if not isinstance(gpus, dict) or told.get("version") != _VERSION:
        raise HistoryUnreadable(f"{file} is no history of checks")
    return {gpu: _checks(checks) for gpu, checks in gpus.items()}


def write(file: Path, history: History) -> None:
    """Keeps a history: all of it or what was there before. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("w", encoding="utf-8") as stream:
        json.dump({"version": _VERSION, "gpus": history}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


def _checks(told: Any) -> list[Figures]:
    rows: Sequence[Any] = told if isinstance(told, list) else ()
    return [
        {str(name): float(value) for name, value in row.items() if _positive(value)}
        for row in rows
        if isinstance(row, dict)
    ]


def _positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < float("inf")
