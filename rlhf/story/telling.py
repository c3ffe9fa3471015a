"""The story told: warm up once, train three times, draw the curves, ask the doctor.

    clusterops rlhf story [--folder DIR] [--report FILE]

Each run is a process of its own; as many run at once as there are cores.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlhf import plot_png, plots
from rlhf.doctor.diagnosis import Diagnosis, diagnose
from rlhf.report import curve
from rlhf.run_folder import RunFolder
from rlhf.story import settings

_POLL_SECONDS = 0.2
_DEADLINE_SECONDS = 900.0
_NEWS_SECONDS = 10.0
_ENDS = 4
"""Steps whose mean is the first reward, and the last."""

Say = Callable[[str], None]


class StoryFailed(Exception):
    """One of the runs did not come to its end; says which, and what it said last."""


class Run(NamedTuple):
    """One of the three. `title` is for people."""

    name: str
    title: str
    command: tuple[str, ...]
    folder: RunFolder


class Told(NamedTuple):
    """How the story ended. Curves are of the true reward, whatever the trainer was told."""

    curves: Mapping[str, list[tuple[float, float]]]
    digests: Mapping[str, str]
    doctor: Diagnosis
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        alignment = next(one for one in self.doctor.sections if one.topic == "alignment")
        return {
            "runs": [
                {
                    "name": name,
                    "firstReward": round(mean_of(points[:_ENDS]), 4),
                    "lastReward": round(mean_of(points[-_ENDS:]), 4),
                    "orderDigest": self.digests[name],
                }
                for name, points in self.curves.items()
            ],
            "doctor": {
                "verdict": self.doctor.verdict,
                "shift": self.doctor.shift,
                "samples": alignment.figures["samples"],
            },
            "seconds": round(self.seconds, 1),
        }


def runs_below(folder: Path, start: Path) -> tuple[Run, ...]:
    """The three runs, each in a folder of its own."""
    words = (*settings.COMMON, *settings.from_start(start))
    trained = (sys.executable, "-m", "rlhf.train", "--run")
    below = {name: RunFolder(folder / name) for name in ("naive", "ordered", "undisturbed")}
    return (
        Run(
            "naive",
            "rewards by position, through a loader that sleeps",
            (sys.executable, "-m", "rlhf.story.naive", str(below["naive"].path), *words),
            below["naive"],
        ),
        Run(
            "ordered",
            "the ordered queue, rewards late, overtaking, asked twice, lost",
            (*trained, str(below["ordered"].path), *words, *settings.UNRELIABLE, "name=ordered"),
            below["ordered"],
        ),
        Run(
            "undisturbed",
            "the ordered queue, nothing in the way",
            (*trained, str(below["undisturbed"].path), *words, "name=undisturbed"),
            below["undisturbed"],
        ),
    )


def tell(folder: Path, say: Say) -> Told:
    """Runs the whole story.

    Raises:
        StoryFailed: a run did not come to its end.
    """
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    say("Task: give back five digits in reverse. First a warm-up by imitation, shared by all runs.")
    start = folder / "warm.safetensors"
    warm_up = (
        sys.executable,
        "-m",
        "rlhf.story.warming",
        str(start),
        *settings.COMMON,
        *settings.WARM_UP,
    )
    _together([("warm-up", warm_up)], folder, say)
    runs = runs_below(folder, start)
    for run in runs:
        say(f"  {run.name}: {run.title}")
    # The queue's runs first: they overlap two processes each, the naive one fills the gap.
    order = sorted(runs, key=lambda run: run.name == "naive")
    _together([(run.name, run.command) for run in order], folder, say, lambda: how_far(runs))
    curves = {run.name: true_rewards(run.folder) for run in runs}
    digests = {run.name: order_digest(run.folder) for run in runs}
    (folder / "rewards.png").write_bytes(plot_png.png(curves))
    doctor = diagnose(folder / "naive")
    for line in epilogue(curves, digests, doctor, folder):
        say(line)
    return Told(curves, digests, doctor, time.monotonic() - began)


def epilogue(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    digests: Mapping[str, str],
    doctor: Diagnosis,
    folder: Path,
) -> list[str]:
    """What the runs have come to."""
    lines = ["", "True reward, step by step:", *plots.terminal(curves), ""]
    for name, points in curves.items():
        first, last = mean_of(points[:_ENDS]), mean_of(points[-_ENDS:])
        lines.append(f"  {name:<12} {first:.3f} -> {last:.3f}   order {digests[name][:16]}")
    same = digests["ordered"] == digests["undisturbed"]
    lines += [
        "",
        "The ordered run saw the very samples of the undisturbed one, in the same order: "
        + ("yes." if same else "NO."),
        f"The doctor on the naive run: {doctor.verdict}",
        f"Curves: {folder / 'rewards.png'}",
    ]
    return lines


def true_rewards(folder: RunFolder) -> list[tuple[float, float]]:
    """The mean reward of each step's samples, as it should be: what the naive run was never told."""
    rows = folder.metric_rows()
    return curve(rows, "story/reward") or curve(rows, "objective/scores")


def order_digest(folder: RunFolder) -> str:
    """The digest over the samples of a run, in the order in which they were trained on."""
    noted = folder.path / "order_digest"
    if noted.exists():
        return noted.read_text().strip()
    newest = max(folder.checkpoints.glob("step_*/manifest.json"), key=lambda path: path.parent.name)
    digest: str = json.loads(newest.read_text())["orderDigest"]
    return digest


def mean_of(points: Sequence[tuple[float, float]]) -> float:
    """The mean of a curve's values."""
    return sum(value for _, value in points) / max(1, len(points))


def how_far(runs: Sequence[Run]) -> str:
    """A line on the runs that have begun and go on; empty when there is none."""
    steps = [(run.name, len(run.folder.metric_rows())) for run in runs]
    going_on = [
        f"{name} {done}/{settings.STEPS}" for name, done in steps if 0 < done < settings.STEPS
    ]
    return "  steps: " + ", ".join(going_on) if going_on else ""


def _together(
    commands: Sequence[tuple[str, tuple[str, ...]]],
    folder: Path,
    say: Say,
    news: Callable[[], str] = lambda: "",
) -> None:
    """Runs commands, as many at once as there are cores; says when each ends, and `news` now and then."""
    waiting, running = list(commands), dict[str, subprocess.Popen[bytes]]()
    deadline = time.monotonic() + _DEADLINE_SECONDS
    next_news_at = time.monotonic() + _NEWS_SECONDS
    try:
        while waiting or running:
            while waiting and len(running) < max(1, min(3, os.cpu_count() or 1)):
                name, command = waiting.pop(0)
                with (folder / f"{name}.log").open("wb") as log:
                    running[name] = subprocess.Popen(command, stdout=log, stderr=log)
            _wait_for_one(running, min(deadline, next_news_at))
            if time.monotonic() > deadline:
                told = f"{', '.join(running)} did not end in {_DEADLINE_SECONDS:g} s"
                raise StoryFailed(told)
            if time.monotonic() > next_news_at:
                next_news_at += _NEWS_SECONDS
                if line := news():
                    say(line)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                code = running.pop(name).returncode
                if code != 0:
                    raise StoryFailed(_last_words(name, code, folder))
                say(f"{name} is done")
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _wait_for_one(running: Mapping[str, "subprocess.Popen[bytes]"], until: float) -> None:
    """Waits until one has ended, or until a time on the monotonic clock."""
    first = next(iter(running.values()))
    while all(process.poll() is None for process in running.values()):
        if time.monotonic() > until:
            return
        try:
            first.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _last_words(name: str, code: int, folder: Path) -> str:
    path = folder / f"{name}.log"
    said = path.read_text(errors="replace").splitlines()[-12:]
    return "\n".join([f"{name} ended with code {code}; the end of {path}:", *said])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: `[FOLDER] [--report FILE]`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    report = Path(words.pop(words.index("--report") + 1)) if "--report" in words else None
    words = [word for word in words if word != "--report"]
    folder = Path(words[0]) if words else Path(tempfile.mkdtemp(prefix="rlhf-story-"))
    return story(folder, report)


def story(folder: Path, report: Path | None) -> int:
    """Tells it on standard error; writes the report. Exit code 1 when a run failed."""

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    try:
        told = tell(folder, say)
    except StoryFailed as error:
        say(str(error))
        return 1
    if report is not None:
        report.write_text(json.dumps(told.as_json(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
