"""How a run shows what it does: a live panel in a terminal, plain lines anywhere else."""

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

_PARTS = "objective/scores/"
_LINES = 30
"""About so many plain lines a run."""


class Display:
    """Shows each step as it is done. `total` steps; seconds are of the monotonic clock."""

    def __init__(self, total: int, *, live: bool | None = None) -> None:
        self._total = total
        self._live = sys.stderr.isatty() if live is None else live
        self._began = time.monotonic()
        self._first: int | None = None
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
        line = self._line(step, metrics)
        if self._panel is None:
            if (step + 1) % max(1, self._total // _LINES) == 0 or step + 1 == self._total:
                self.say(line)
            return
        from rich.text import Text

        self._panel.update(Text(line.replace("  ", "\n  ")))

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        parts = " ".join(
            f"{name.removeprefix(_PARTS)} {value:.3f}"
            for name, value in metrics.items()
            if name.startswith(_PARTS)
        )
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
        return f"{minutes}:{rest:02d}"
