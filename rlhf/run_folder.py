"""The folder of a run: what is where, and what of an earlier life still holds after a resume."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlhf import sample_rows

METRICS = "metrics.jsonl"
CONFIG = "config.resolved.yaml"
REPORT = "report.html"


class RunFolder:
    """Paths of a run, and its two append-only records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG
        self.metrics = path / METRICS
        self.samples = path / sample_rows.NAME
        self.weights = path / "weights"
        self.checkpoints = path / "checkpoints"
        self.report = path / REPORT

    def rewind(self, step: int) -> None:
        """Drops the metrics and samples of `step` and later, which will be made anew."""
        for path in (self.metrics, self.samples):
            keep_lines(path, lambda line: int(line.get("step", -1)) < step)

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One step's metrics, at once on the disk's way: a crash loses no earlier line."""
        with self.metrics.open("ab") as file:
            file.write(json.dumps(dict(row)).encode() + b"\n")

    def append_samples(self, rows: list[sample_rows.SampleRow]) -> None:
        """One step's samples."""
        with self.samples.open("ab") as file:
            sample_rows.write(file, rows)

    def write_result(self, beside: Path, result: Mapping[str, Any]) -> None:
        """Writes `result.json` into a folder, whole or not at all."""
        draft = beside / ".result.draft"
        draft.write_text(json.dumps(dict(result), indent=1) + "\n", encoding="utf-8")
        draft.replace(beside / "result.json")

    def metric_rows(self) -> list[dict[str, Any]]:
        """All whole lines of the metrics."""
        return list(whole_lines(self.metrics))


def whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line; a torn line is left out. Nothing when there is none."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def keep_lines(path: Path, wanted: Any) -> None:
    """Rewrites a file of JSON lines with those that are wanted; whole or not at all."""
    if not path.exists():
        return
    kept = [line for line in whole_lines(path) if wanted(line)]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.writelines(json.dumps(line).encode() + b"\n" for line in kept)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
