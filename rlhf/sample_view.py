"""Samples of a run for a person: prompt, response, the reward and its parts, and the way they came."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from rlhf import sample_rows
from rlhf.reward_queue_grading import ATTEMPTS_PER_LIFE
from rlhf.sample_rows import SampleRow


class NoSamples(Exception):
    """The run has written no sample that was asked for."""


class By(StrEnum):
    """Which samples come first."""

    SLOT = "slot"
    BEST = "best"
    WORST = "worst"
    SLOWEST = "slowest"


def _place(row: SampleRow, by: By) -> tuple[float, int]:
    value = {
        By.SLOT: 0.0,
        By.BEST: -row.reward,
        By.WORST: row.reward,
        By.SLOWEST: -(row.latency_seconds or 0.0),
    }[by]
    return value, row.seq


def chosen(
    folder: Path,
    *,
    step: int | None = None,
    seq: int | None = None,
    limit: int = 8,
    by: By = By.SLOT,
) -> list[SampleRow]:
    """The samples of a step (by default the last), or one slot; what a later life repeated counts.

    Raises:
        NoSamples: there are none.
    """
    path = folder / sample_rows.NAME
    try:
        newest = {row.seq: row for row in sample_rows.read(path)}
    except FileNotFoundError:
        raise NoSamples(
            f"{folder} has no {sample_rows.NAME}; was it run with reports.samples?"
        ) from None
    if seq is not None:
        found = [newest[seq]] if seq in newest else []
    else:
        wanted = max((row.step for row in newest.values()), default=-1) if step is None else step
        found = sorted(
            (row for row in newest.values() if row.step == wanted), key=lambda row: _place(row, by)
        )
    if not found:
        steps = sorted({row.step for row in newest.values()})
        there = f"steps {steps[0]} to {steps[-1]} are there" if steps else "there are none"
        raise NoSamples(f"{path} holds no such sample; {there}")
    return found[:limit]


def lines(row: SampleRow) -> Iterator[str]:
    """One sample in words. Texts are foreign: escape them where they are shown."""
    draw = f", draw {row.draw}" if row.draw else ""
    yield f"s{row.seq} (step {row.step}, group {row.group_id}{draw}, policy version {row.policy_version})"
    yield f"  prompt    {row.prompt}"
    yield f"  response  {row.response}"
    parts = ", ".join(f"{name} {value:.3f}" for name, value in row.parts.items())
    known = "  (canary: known beforehand, trains nothing)" if row.canary else ""
    yield f"  reward    {row.reward:.4f}" + (f"  ({parts})" if parts else "") + known
    if row.recomputed is not None:
        yield f"  audit     {row.recomputed:.4f} when computed again"
    if row.advantage is not None:
        yield f"  advantage {row.advantage:+.4f}"
    if row.latency_seconds is not None:
        by = f" by {row.worker}" if row.worker else ""
        yield f"  graded    in {row.latency_seconds:.3f} s, {attempt_in_words(row.attempt)}{by}"


def attempt_in_words(number: int) -> str:
    """An attempt's number says how often the process had been restarted before, in its thousands."""
    restarts, attempt = divmod(number, ATTEMPTS_PER_LIFE)
    after = f" after {restarts} restart{'s' if restarts > 1 else ''}" if restarts else ""
    return f"attempt {attempt}{after}"


def as_json(row: SampleRow) -> dict[str, Any]:
    """One sample for a program."""
    return {name: getattr(row, name) for name in row.__struct_fields__}
