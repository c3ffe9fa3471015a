"""The group `rlhf`: a table of its commands, each loaded when it is called."""

from pathlib import Path
from typing import Annotated

import typer

from clusterops.cli import errors
from clusterops.cli.main import LazyGroup, Row
from clusterops.cli.options import Format, Output

RUNS = "clusterops.cli.rlhf_runs"
ENGINE = "clusterops.cli.rlhf_engine"
COMMANDS = (
    Row("train", RUNS, "train", "Start or continue a run."),
    Row("doctor", "clusterops.cli.rlhf", "doctor", "Say what is wrong with a run, in one line."),
    Row("samples", RUNS, "samples", "Show samples with their rewards and the way they came."),
    Row("replay", ENGINE, "replay", "Generate one rollout again, and compare."),
    Row("serve", ENGINE, "serve", "Serve a model with OpenAI's interface, to try it."),
    Row("export", RUNS, "export", "Write a policy in the Hugging Face layout."),
    Row("train-reward", RUNS, "train_reward", "Train a reward model on preferences."),
    Row("story", RUNS, "story", "Watch slipped rewards fail, and ordered ones not."),
)


class RlhfGroup(LazyGroup):
    """The commands below `clusterops rlhf`."""

    rows = COMMANDS


app = typer.Typer(
    cls=RlhfGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def rlhf() -> None:
    """Reinforcement learning from rewards: ordered, verified, and examined."""


def doctor(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of the run.")],
    output: Output = Format.TABLE,
) -> int:
    """Examine a run, finished or not: order, alignment of rewards, stalls, staleness, absences.

    The first line is the verdict. Exit code 1 when something is wrong.
    """
    from clusterops.cli import output as printer
    from rlhf.doctor import diagnosis, evidence

    try:
        found = diagnosis.diagnose(run_folder)
    except evidence.NoRun as error:
        way_out = "name the folder that `clusterops rlhf train` wrote"
        raise errors.CommandError(str(error), way_out, errors.NOT_FOUND) from None
    if output is Format.JSON:
        printer.write_json(found.as_json())
    else:
        for line in found.lines():
            printer.write(printer.safe(line))
    return errors.DONE if found.healthy else errors.FAILED
