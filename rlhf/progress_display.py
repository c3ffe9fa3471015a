"""How a run shows what it does: a live panel in a terminal, plain lines anywhere else."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rlhf.missing import Reason

_PARTS = "objective/scores/"
_LINES = 30
"""About so many plain lines a run."""
_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_SCORES = 32


class Display:
    """Shows each step as it is done. `total` steps; seconds are of the monotonic clock."""

    def __init__(self, total: int, *, live: bool | None = None) -> None:
        self._total = total
        self._live = sys.stderr.isatty() if live is None else live
        self._began = time.monotonic()
        self._first: int | None = None
        self._scores: deque[float] = deque(maxlen=_SHOWN_SCORES)
        self._panel: Any = None

    def shown(self) -> AbstractContextManager[Any]:
        """While it lasts, the panel is there."""
        if not self._live:
            return nullcontext()
        from rich.console import Console
        from rich.live import Live

        self._panel = Live(console=Console(stderr=True), refresh_per_second=4)
        panel: AbstractContextManager[Any] = self._panel
        return panel

    def say(self, line: str) -> None:
        """One line of news."""
        if self._panel is not None:
            self._panel.console.print(line, markup=False, highlight=False)
        else:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done."""
        if self._first is None:
            self._first, self._began = step, time.monotonic()
        self._scores.append(metrics["objective/scores"])
        if self._panel is not None:
            self._panel.update(self._drawn(step, metrics))
        elif (step + 1) % max(1, self._total // _LINES) == 0 or step + 1 == self._total:
            self.say(self._line(step, metrics))

    def _drawn(self, step: int, metrics: Mapping[str, float]) -> Any:
        """The panel: how far, how good, how fast, and what the queue does."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        head = Table.grid(padding=(0, 1))
        head.add_row(
            f"step {step + 1}/{self._total}",
            ProgressBar(total=self._total, completed=step + 1, width=_SHOWN_SCORES),
            f"left {self._left(step)}",
        )
        body = Table.grid(padding=(0, 2))
        body.add_column(style="dim")
        for name, value in rows(metrics):
            body.add_row(name, value)
        body.add_row("", sparkline(self._scores))
        whole = Table.grid()
        whole.add_row(head)
        whole.add_row(body)
        return whole

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        parts = _listed(metrics, _PARTS)
        return (
            f"step {step + 1}/{self._total}  score {metrics['objective/scores']:.3f}"
            + (f" ({parts})" if parts else "")
            + f"  KL {metrics['objective/kl']:.3f}"
            + f"  {metrics.get('perf/tokens_per_second', 0.0):.0f} tokens/s"
            + f"  queue {metrics.get('queue/depth', 0.0):.0f}"
            + f"  stale {metrics.get('staleness/versions', 0.0):.0f}"
            + f"  left {self._left(step)}"
        )

    def _left(self, step: int) -> str:
        assert self._first is not None
        done = step - self._first
        if done <= 0:
            return "?"
        seconds = (time.monotonic() - self._began) / done * (self._total - step - 1)
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def rows(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """The lines of the panel, (name, value)."""

    def number(name: str) -> float:
        return metrics.get(name, 0.0)

    parts = _listed(metrics, _PARTS)
    missing = {reason: number(f"queue/{reason}") for reason in Reason}
    absent = ", ".join(f"{count:.0f} {reason}" for reason, count in missing.items() if count)
    return [
        ("score", f"{number('objective/scores'):.3f}" + (f"  {parts}" if parts else "")),
        (
            "policy",
            f"KL {number('objective/kl'):.3f}  entropy {number('objective/entropy'):.3f}  clipped "
            f"{number('policy/clipfrac_avg'):.1%}  length {number('val/response_length'):.1f}",
        ),
        (
            "speed",
            f"{number('perf/tokens_per_second'):,.0f} tokens/s  step {number('perf/step_seconds'):.2f} s"
            f"  rollout {number('perf/rollout_seconds'):.2f} s"
            f"  waited {number('perf/wait_seconds'):.2f} s",
        ),
        (
            "queue",
            f"{number('queue/depth'):.0f} samples  {number('staleness/versions'):.0f} versions stale"
            f"  {number('queue/redrawn'):.0f} redrawn"
            f"  missing: {absent or 'none'}",
        ),
    ]


def sparkline(values: "deque[float]") -> str:
    """The latest values as bars, the lowest to the highest of them."""
    if not values:
        return ""
    low, span = min(values), max(values) - min(values)
    return "".join(
        _BARS[round((value - low) / span * (len(_BARS) - 1)) if span else 0] for value in values
    )


def _listed(metrics: Mapping[str, float], before: str) -> str:
    return " ".join(
        f"{name.removeprefix(before)} {value:.3f}"
        for name, value in metrics.items()
        if name.startswith(before)
    )
