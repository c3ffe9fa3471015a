"""`report.html` of a run: its curves, its configuration, its end. One file, nothing loaded from anywhere.

It is made from what lies in the run folder, so it can be made after a crash as well. While a run goes
on it is made anew now and then, so that a run whose process was killed has one too.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rlhf import plots
from rlhf.run_folder import RunFolder

_PLOTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Score", ("objective/scores", "objective/rlhf_reward")),
    ("KL to the reference, per response", ("objective/kl",)),
    ("Entropy", ("objective/entropy",)),
    ("Clipped tokens and approximate KL of a step", ("policy/clipfrac_avg", "policy/approxkl_avg")),
    ("Losses", ("loss/policy_avg", "loss/value_avg")),
    ("Length of responses", ("val/response_length",)),
    ("Queue depth", ("queue/depth",)),
    ("Seconds of a step", ("perf/step_seconds", "perf/wait_seconds", "perf/rollout_seconds")),
    ("Staleness: mismatch KL", ("staleness/mismatch_kl",)),
    ("Tokens a second", ("perf/tokens_per_second",)),
    ("Rollout: places of the KV cache held and not in use", ("rollout/kv_waste",)),
)
_PARTS = "objective/scores/"
_EVERY_SECONDS = 20.0
_MOST_OF_THE_TIME = 100.0
_STYLE = """
body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;color:#1f2328}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}.plots{display:flex;flex-wrap:wrap;gap:1rem}
svg{max-width:100%;height:auto;background:#fff}svg .title{font-weight:600;font-size:13px}
svg .frame{fill:none;stroke:#d0d7de}svg .grid{stroke:#eaeef2}svg .tick{font-size:10px;fill:#57606a}
svg .name{font-size:11px}pre{background:#f6f8fa;padding:1rem;overflow:auto}
.end{padding:.6rem 1rem;border-left:4px solid #1a7f37;background:#f6f8fa}.failed{border-color:#d1242f}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}
"""


def write(folder: RunFolder, ending: str, *, failed: bool) -> Path:
    """Writes the report; whole or not at all."""
    page = html(
        folder.path.name,
        folder.metric_rows(),
        folder.config.read_text(encoding="utf-8") if folder.config.exists() else "",
        ending,
        failed=failed,
    )
    draft = folder.report.with_suffix(".draft")
    draft.write_text(page, encoding="utf-8")
    draft.replace(folder.report)
    return folder.report


class RunningReport:
    """The report of a run that goes on: after its first step, then every so often. It never takes much of
    the time.
    """

    def __init__(
        self, folder: RunFolder, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._total = total
        self._clock = clock
        self._next_at = clock()

    def step(self, done: int) -> None:
        """So many steps are done."""
        began = self._clock()
        if began < self._next_at:
            return
        write(self._folder, f"{done} of {self._total} steps are done; it goes on", failed=False)
        ended = self._clock()
        self._next_at = ended + max(_EVERY_SECONDS, _MOST_OF_THE_TIME * (ended - began))


def html(
    name: str, rows: Sequence[Mapping[str, Any]], config: str, ending: str, *, failed: bool
) -> str:
    """The page."""
    shown = [
        (title, names)
        for title, names in _PLOTS
        if any(one in row for row in rows for one in names)
    ]
    parts = sorted({key for row in rows for key in row if key.startswith(_PARTS)})
    if parts:
        shown.insert(1, ("Parts of the score", tuple(parts)))
    drawn = "".join(
        plots.svg(title, {one.rsplit("/", 1)[-1]: curve(rows, one) for one in names})
        for title, names in shown
    )
    latest = rows[-1] if rows else {}
    table = "".join(
        f"<tr><td>{escape(str(key))}</td><td>{escape(_shown(value))}</td></tr>"
        for key, value in sorted(latest.items())
    )
    kind = "end failed" if failed else "end"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(name)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{escape(name)}</h1><p class="{kind}">{escape(ending)}</p>'
        f'<div class="plots">{drawn or "no step was made"}</div>'
        f"<h2>Last step</h2><table>{table}</table>"
        f"<h2>Configuration</h2><pre>{escape(config)}</pre></body></html>\n"
    )


def curve(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """A metric over the steps."""
    return [
        (float(row["step"]), float(row[name]))
        for row in rows
        if isinstance(row.get(name), int | float) and isinstance(row.get("step"), int)
    ]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
