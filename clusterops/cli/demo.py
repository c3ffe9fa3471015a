"""`demo`: a chapter of what clusterops does, on real processes, told as it happens."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clusterops.local.demo import faults, preemption, rlhf
from clusterops.local.demo.report import Report
from clusterops.local.demo.stage import DemoFailed, Stage, stage
from clusterops.local.demo.timeline import Told
from clusterops.local.errors import LocalModeError
from clusterops.local.observe import printable
from clusterops.local.state_folder import StateFolder

INTERRUPTED = 130


class Chapter(StrEnum):
    """What can be played."""

    PREEMPTION = "preemption"
    FAULTS = "faults"
    RLHF = "rlhf"


CHAPTERS: dict[Chapter, Callable[[Stage], Awaitable[Report]]] = {
    Chapter.PREEMPTION: preemption.play,
    Chapter.FAULTS: faults.play,
    Chapter.RLHF: rlhf.play,
}


def demo(
    chapter: Annotated[Chapter, typer.Argument(help="What to show.")] = Chapter.PREEMPTION,
    report_file: Annotated[
        Path | None, typer.Option("--report", help="Write what was measured to this file, JSON.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Play in this folder and leave it [default: a temporary one]."),
    ] = None,
) -> None:
    """Watch jobs being preempted, losing a GPU, saved, resumed; about a minute and a half a chapter."""
    folder = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="clusterops-demo-"))
    try:
        measured = asyncio.run(_play(chapter, StateFolder(folder)))
    except (DemoFailed, LocalModeError) as error:
        typer.echo(f"the demo failed: {error}", err=True)
        if isinstance(error, LocalModeError):
            typer.echo(f"  {error.way_out}", err=True)
        raise typer.Exit(1) from None
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    _show(measured)
    if report_file is not None:
        report_file.write_text(json.dumps(measured.to_json(), indent=2) + "\n")
    problems = measured.problems()
    for problem in problems:
        typer.echo(f"not as it must be: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


async def _play(chapter: Chapter, folder: StateFolder) -> Report:
    playing = asyncio.current_task()

    def asked_to_stop() -> None:
        # Cancelling unwinds the stage: jobs are ended, parts stopped, the folder removed. Once: to
        # cancel that in turn would leave processes behind.
        if playing and not playing.cancelling():
            typer.echo("ending the jobs and the servers", err=True)
            playing.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop)
    try:
        async with stage(folder, manifests(), tell=_tell, environ=os.environ) as on:
            return await CHAPTERS[chapter](on)
    except* DemoFailed as failures:
        raise failures.exceptions[0] from None


def manifests() -> Path:
    """The shipped manifests: beside the package in an installed wheel, or in the checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_manifests"
    return installed if installed.exists() else package.parent / "manifests"


def _tell(line: Told) -> None:
    typer.echo(f"{line.at:6.1f} s  {printable(line.job):<14} {printable(line.text)}")
    with contextlib.suppress(ValueError):
        sys.stdout.flush()


def _show(measured: Report) -> None:
    rows = measured.table()
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    typer.echo()
    for row in rows:
        typer.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    typer.echo()
    typer.echo(measured.closing())
