"""Starts or continues an RLHF run.

    python -m rlhf.train --config run.yaml --run runs/first ppo.epochs=2 optimizer.lr=1e-5
    python -m rlhf.train --config run.toml --dry-run

The run folder holds everything: `config.resolved.yaml`, `metrics.jsonl`, `samples.jsonl`, `journal/`,
`checkpoints/`, `weights/`, `report.html`. Started again with the same folder, the run goes on. A
TrainingJob's run folder is its checkpoint directory, which outlives the pod; checkpoints are then in it.
"""

import argparse
import importlib
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from clusterops.api.text import printable
from clusterops.train.environment import read as read_environment
from clusterops.train.errors import ConfigurationError, Leave
from rlhf import report
from rlhf.config import resolve
from rlhf.config.limits import derived
from rlhf.config.resolve import ConfigurationInvalid, Resolved
from rlhf.config.sections import RunConfig
from rlhf.progress_display import Display
from rlhf.run_folder import RunFolder
from rlhf.trackers import trackers

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_MAY_CHANGE = (
    "steps",
    "reports.",
    "checkpoints.",
    "grader.workers",
    "grader.url",
    "grader.key_file",
)
_QUEUE_MAY_CHANGE = ("_seconds", ".retries", ".then", ".hedge_percentile", ".hedge_budget")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit code."""
    options = _options(arguments)
    try:
        resolved, folder = _resolved(options)
        if options.dry_run:
            sys.stdout.write("\n".join(described(resolved, folder)) + "\n")
            return DONE
        run_id = _begun(resolved.config, folder, options.resume)
    except (ConfigurationInvalid, ConfigurationError) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    return _train(resolved.config, folder, run_id)


def _train(config: RunConfig, folder: RunFolder, run_id: str) -> int:
    display = Display(config.steps)
    # Reward functions of the user are found where the command was given.
    sys.path[:0] = [str(Path.cwd())]
    ending, failed = "the run was interrupted", True
    before = signal.signal(signal.SIGINT, _interrupted)
    try:
        runs = _runs()
        display.say(
            f"run {run_id} in {folder.path}: {config.steps} steps of {config.rollout.batch}"
        )
        following = trackers(config, folder, run_id)
        try:
            with display.shown():
                runs.run(config, folder, display, following)
        except runs.FAILURES as error:
            ending = f"{type(error).__name__}: {error}"
            # It may quote a reward function's words.
            sys.stderr.write(f"{printable(ending, keep=chr(10))}\n")
            return FAILED
        finally:
            for tracker in following:
                tracker.close()
        ending, failed = f"all {config.steps} steps are done", False
        for line in finished(folder, ending):
            display.say(line)
        return DONE
    except Leave as leave:
        ending, failed = str(leave), False
        raise
    except ConfigurationInvalid as error:
        ending = str(error)
        sys.stderr.write(f"{ending}\n")
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write(
            "interrupted; what was saved is kept, and the same command goes on from it\n"
        )
        return INTERRUPTED
    except Exception as error:
        ending = f"{type(error).__name__}: {error}"
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        report.write(folder, ending, failed=failed)


def finished(folder: RunFolder, ending: str) -> list[str]:
    """The last lines of a run: what it has come to, and what to do with it."""
    rows = folder.metric_rows()
    few = max(1, min(5, len(rows) // 4))
    first, last = (
        sum(row.get("objective/scores", 0.0) for row in some) / few
        for some in (rows[:few], rows[-few:])
    )
    told = f"{ending}: score {first:.3f} -> {last:.3f}" if rows else ending
    return [
        told,
        f"  curves    {folder.report}",
        f"  samples   clusterops rlhf samples {folder.path}",
        f"  proof     clusterops rlhf doctor {folder.path}",
        f"  weights   clusterops rlhf export {folder.path} FOLDER",
        f"  try it    clusterops rlhf serve {folder.path}",
    ]


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Ctrl-C is a wish to leave, as TERM is: the run saves first. The second one leaves at once, and so
    does one that comes before there is anything to save.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        raise KeyboardInterrupt
    sys.stderr.write("leaving as soon as this step is saved; Ctrl-C again leaves at once\n")
    signal.raise_signal(signal.SIGTERM)


def _runs() -> Any:
    """The module with torch in it, which a dry run or a wrong configuration does without.

    Raises:
        ConfigurationInvalid: torch is not installed.
    """
    try:
        return importlib.import_module("rlhf.run")
    except ModuleNotFoundError as error:
        raise ConfigurationInvalid(
            f"training needs the package {error.name}: pip install 'clusterops[rlhf]'"
        ) from error


def _resolved(options: argparse.Namespace) -> tuple[Resolved, RunFolder]:
    """The configuration, of the file given or of the run that goes on; and the folder."""
    given = options.run or read_environment(os.environ).directory
    if given is not None and options.config is None:
        stored = RunFolder(given)
        if stored.config.exists():
            said = resolve.stored_values(stored.config)
            return resolve.resolve_values(said, str(stored.config), options.settings), stored
    resolved = resolve.resolve(options.config, options.settings)
    return resolved, RunFolder(given or Path("runs") / resolved.config.name)


def _begun(config: RunConfig, folder: RunFolder, resume: str) -> str:
    """Makes the folder, or checks that it is this run's; the run's identity.

    Raises:
        ConfigurationInvalid: the folder is not fit for this run.
    """
    if not folder.config.exists():
        if resume == "must":
            raise ConfigurationInvalid(f"{folder.path} holds no run to resume")
        foreign = [
            name
            for name in ("journal", "checkpoints", "weights", "metrics.jsonl", "samples.jsonl")
            if (folder.path / name).exists()
        ]
        if foreign:
            raise ConfigurationInvalid(
                f"{folder.path} holds {', '.join(foreign)} of something else, and no "
                f"{folder.config.name}: give an empty folder"
            )
        run_id = f"{config.name}-{secrets.token_hex(4)}"
        folder.path.mkdir(parents=True, exist_ok=True)
        _write(folder.config, resolve.dump(config, run_id=run_id))
        return run_id
    if resume == "never":
        raise ConfigurationInvalid(
            f"{folder.path} holds a run already, and --resume never was given"
        )
    before = resolve.values(resolve.read_resolved(folder.config))
    differing = [
        f"{key}: {before[key]} then, {value} now"
        for key, value in resolve.values(config).items()
        if before.get(key) != value and not _may_change(key)
    ]
    if differing:
        raise ConfigurationInvalid(
            f"{folder.path} holds a run with other settings; give it those, or another folder:\n"
            + "\n".join(differing)
        )
    run_id = resolve.run_id_of(folder.config)
    _write(folder.config, resolve.dump(config, run_id=run_id))
    return run_id


def _may_change(key: str) -> bool:
    return key.startswith(_MAY_CHANGE) or (
        key.startswith("queue.") and key.endswith(_QUEUE_MAY_CHANGE)
    )


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def described(resolved: Resolved, folder: RunFolder) -> list[str]:
    """What a dry run prints: every value with its origin, and what follows."""
    lines = [f"# run folder: {folder.path}", "# every value, and where it comes from"]
    shown = {
        key: f"{key}: {_plain(value)}" for key, value in resolve.values(resolved.config).items()
    }
    widest = max(map(len, shown.values()))
    lines += [f"{text:<{widest}}  # {resolved.origins[key]}" for key, text in shown.items()]
    lines.append("# what follows from them")
    lines += [f"# {one.name}: {one.value} ({one.because})" for one in derived(resolved.config)]
    return lines


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rlhf.train", description="Starts or continues an RLHF run."
    )
    parser.add_argument("--config", type=Path, help="YAML or TOML file")
    parser.add_argument(
        "--run", type=Path, help="folder of the run; default runs/NAME, or the job's"
    )
    parser.add_argument(
        "--resume",
        choices=("auto", "never", "must"),
        default="auto",
        help="auto: go on if the folder holds a run",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the configuration and what follows, and stop"
    )
    parser.add_argument("settings", nargs="*", metavar="a.b=value", help="settings that win")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
