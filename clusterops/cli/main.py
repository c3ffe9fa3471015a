"""The command line: a table of commands, each loaded when it is called.

`--help` and completion show the table and import none of the commands; so they take hardly longer
than importing typer. A command's module imports typer on top and all else inside its functions.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from clusterops.cli import conversion, errors


class Row(NamedTuple):
    """One command: where its function is, and what `--help` says of it."""

    name: str
    module: str
    function: str
    help: str
    hidden: bool = False


COMMANDS = (
    Row("up", "clusterops.cli.local", "up", "Run a whole cluster on this machine."),
    Row("down", "clusterops.cli.local", "down", "Stop local mode; jobs save first."),
    Row("status", "clusterops.cli.local", "status", "Say how local mode is."),
    Row("doctor", "clusterops.cli.local", "doctor", "Check this machine; say how to mend it."),
    Row("demo", "clusterops.cli.demo", "demo", "Watch jobs being preempted and resumed."),
    Row("submit", "clusterops.cli.submit", "submit", "Submit a job: FILE, or -- COMMAND."),
    Row("queue", "clusterops.cli.queue", "queue", "List jobs: what runs, what waits and why."),
    Row("logs", "clusterops.cli.logs", "logs", "Print what a job printed, and what befell it."),
    Row("cancel", "clusterops.cli.cancel", "cancel", "Stop jobs, after a last checkpoint."),
    Row("describe", "clusterops.cli.describe", "describe", "Everything about one job."),
    Row("explain", "clusterops.cli.explain", "explain", "Why a job is where it is, in a sentence."),
    Row("top", "clusterops.cli.top", "top", "Who uses the GPUs: by node and by job."),
    Row("health", "clusterops.cli.health", "app", "GPU faults: what a line means, and what to do."),
    Row(
        "rlhf",
        "clusterops.cli.rlhf",
        "app",
        "Reinforcement learning from rewards: train, doctor, story.",
    ),
    Row("manifests", "clusterops.cli.manifests", "manifests", "Print what a cluster needs."),
    Row("operator", "clusterops.cli.serve", "operator", "Run the operator of a cluster."),
    Row("agent", "clusterops.cli.serve", "agent", "Run this machine as a node."),
    Row("version", "clusterops.cli.version", "version", "Versions of this program and the server."),
    Row("apiserver", "clusterops.cli.serve", "apiserver", "Part of local mode.", hidden=True),
    Row("queueing", "clusterops.cli.serve", "queueing", "Part of local mode.", hidden=True),
)


class LazyGroup(TyperGroup):
    """A group whose commands are names and help until one of them is called."""

    rows: ClassVar[tuple[Row, ...]] = COMMANDS

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for row in self.rows:
            stub = TyperCommand(row.name, help=row.help, hidden=row.hidden, rich_markup_mode=None)
            self.add_command(stub)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, loaded; an unknown name is refused with what was meant."""
        name, command, rest = super().resolve_command(ctx, args)
        row = next((row for row in self.rows if row.name == name), None)
        return name, command if row is None else load(row), rest


def load(row: Row) -> Any:
    """The real command of a row, or group of commands when the row names a typer application.

    A module may name a command class of its own as `COMMAND_CLASS`.
    """
    module = importlib.import_module(row.module)
    entry = getattr(module, row.function)
    if isinstance(entry, typer.Typer):
        group = typer.main.get_command(entry)
        group.name = row.name
        conversion.lighten(group)
        return group
    only = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings=_CONTEXT_SETTINGS
    )
    only.command(
        row.name, cls=getattr(module, "COMMAND_CLASS", None), context_settings=_CONTEXT_SETTINGS
    )(entry)
    command = typer.main.get_command(only)
    conversion.lighten(command)
    return command


_CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=LazyGroup,
    name="clusterops",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_CONTEXT_SETTINGS,
)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib import metadata

        typer.echo(f"clusterops {metadata.version('clusterops')}")
        raise typer.Exit


@app.callback()
def clusterops(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_say_version,
            is_eager=True,
            help="This program's version; the server's too: clusterops version.",
        ),
    ] = False,
) -> None:
    """Run AI training on a cluster: by priority, and with almost nothing lost when GPUs move on.

    Start on this machine with: clusterops up
    """
    del version  # its callback has ended the program
    del debug  # read by errors.guarded, which also sees failures before this function is called


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit code."""
    _open_missing_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    conversion.lighten(command)
    return errors.guarded(
        lambda: command.main(words, prog_name="clusterops", standalone_mode=False),
        debug="--debug" in words[: words.index("--") if "--" in words else None],
    )


def _open_missing_streams() -> None:
    """A stream that the caller closed, as in `clusterops queue >&-`, is None in Python."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It lasts as long as the process does.
            descriptor = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8"))
