"""What a run folder holds for a diagnosis: journal, samples, metrics; each may be missing.

Reading while the run goes on is fine: torn ends are left out.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from rlhf import journal, sample_rows
from rlhf.journal_frames import JournalDamaged, Numbered
from rlhf.sample_rows import SampleRow

METRICS = "metrics.jsonl"


class NoRun(Exception):
    """The folder holds nothing of a run."""


class Evidence(NamedTuple):
    """Where a run's records are, its samples by slot (the latest of each), its metrics by step."""

    folder: Path
    has_journal: bool
    samples: dict[int, SampleRow]
    metrics: list[dict[str, float]]
    problems: tuple[str, ...]


def gather(folder: Path) -> Evidence:
    """Reads samples and metrics, and looks for a journal.

    Raises:
        NoRun: there is none of them.
    """
    problems: list[str] = []
    has_journal = journal.path_in(folder).is_file()
    rows = _samples(folder / sample_rows.NAME, problems)
    metrics = _metrics(folder / METRICS)
    if not (has_journal or rows or metrics):
        raise NoRun(
            f"{folder} holds no run: neither {journal.path_in(Path())} nor {sample_rows.NAME} nor "
            f"{METRICS}"
        )
    return Evidence(folder, has_journal, rows, metrics, tuple(problems))


def records(folder: Path, problems: list[str]) -> Iterator[Numbered]:
    """The records of the journal as far as they can be read; why no further goes to `problems`."""
    try:
        yield from journal.read(journal.path_in(folder))
    except (JournalDamaged, journal.JournalError) as error:
        problems.append(str(error))


def _samples(path: Path, problems: list[str]) -> dict[int, SampleRow]:
    rows: dict[int, SampleRow] = {}
    try:
        for row in sample_rows.read(path):
            # The texts are the bulk, and no analysis reads them.
            rows[row.seq] = replace(row, prompt="", response="")
    except FileNotFoundError:
        pass
    except sample_rows.BrokenRow as error:
        problems.append(str(error))
    return rows


def _metrics(path: Path) -> list[dict[str, float]]:
    """Numbers by name and step; of a step that was done again after a restart, the latest."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    by_step: dict[Any, dict[str, float]] = {}
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the torn last line of a run that goes on or crashed
        if isinstance(row, dict):
            by_step[row.get("step", -1 - number)] = {
                name: float(value)
                for name, value in row.items()
                if isinstance(value, int | float) and math.isfinite(value)
            }
    return list(by_step.values())
