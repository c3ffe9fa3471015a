"""Commands of the group `rlhf` that train, and that show what was trained."""

from pathlib import Path
from typing import Annotated, Any

import typer

from clusterops.cli import errors
from clusterops.cli.options import Format, Output

RunFolder = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of the run.")]


def train(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[a.b=value]...", help="Settings that win.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML or TOML file.")] = None,
    run: Annotated[
        Path | None, typer.Option("--run", help="Run folder; default runs/NAME.")
    ] = None,
    resume: Annotated[
        str, typer.Option("--resume", help="auto (go on if there is a run), never, must.")
    ] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every value and what follows; train nothing.")
    ] = False,
) -> int:
    """Start or continue an RLHF run."""
    from rlhf.train import main

    words = ["--resume", resume, *(["--dry-run"] if dry_run else [])]
    for name, value in (("--config", config), ("--run", run)):
        words += [] if value is None else [name, str(value)]
    return main([*words, *(settings or [])])


def story(
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where the runs go; default a temporary one.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="JSON file of the outcome.")
    ] = None,
) -> int:
    """Watch one task trained three times: with slipping rewards, ordered, and undisturbed.

    Takes about a minute on two idle cores. The curves are drawn here and as rewards.png.
    """
    from rlhf.story import telling

    return telling.main([*([str(folder)] if folder else []), *_named("--report", report)])


def samples(
    run_folder: RunFolder,
    step: Annotated[int | None, typer.Option("--step", help="Default: the last.")] = None,
    seq: Annotated[int | None, typer.Option("--seq", help="Only the sample of this slot.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most samples shown.")] = 8,
    by: Annotated[
        str, typer.Option("--by", help="Which come first: slot, best, worst, slowest.")
    ] = "slot",
    output: Output = Format.TABLE,
) -> None:
    """Show samples of a step: texts, reward and parts, advantage, version, attempts, latency."""
    from clusterops.cli import output as printer
    from rlhf import sample_view

    if by not in list(sample_view.By):
        told = f"--by {by!r} is none of {', '.join(sample_view.By)}"
        raise errors.CommandError(told, "name one of them", errors.USAGE)
    order = sample_view.By(by)
    try:
        rows = sample_view.chosen(run_folder, step=step, seq=seq, limit=limit, by=order)
    except sample_view.NoSamples as error:
        raise errors.CommandError(str(error), "name another step", errors.NOT_FOUND) from None
    if output is Format.JSON:
        printer.write_json([sample_view.as_json(row) for row in rows])
        return
    for row in rows:
        for line in sample_view.lines(row):
            printer.write(printer.safe(line))


def export(
    run_folder: RunFolder,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it.")],
    version: Annotated[
        int | None, typer.Option("--version", help="Policy version; default the newest.")
    ] = None,
) -> None:
    """Write a run's policy in the Hugging Face layout."""
    from clusterops.cli import output as printer
    from rlhf.config.resolve import ConfigurationInvalid
    from rlhf.export import export as write
    from rlhf.weights import SnapshotUnreadable

    try:
        taken = write(run_folder, target, version)
    except (SnapshotUnreadable, ConfigurationInvalid) as error:
        way_out = "name the folder of a run that has trained, and a version it holds"
        raise errors.CommandError(str(error), way_out, errors.NOT_FOUND) from None
    printer.say(f"policy version {taken} is in {target}")


def train_reward(
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS", help="Lines of prompt, chosen, rejected.")
    ],
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the model goes.")],
    steps: Annotated[int, typer.Option("--steps", min=1)] = 300,
    lr: Annotated[float, typer.Option("--lr")] = 1e-3,
    context: Annotated[
        int, typer.Option("--context", min=8, help="Bytes of prompt and response that count.")
    ] = 256,
    width: Annotated[int, typer.Option("--width", min=8, help="Of the model's layers.")] = 64,
    layers: Annotated[int, typer.Option("--layers", min=1)] = 2,
    held_back: Annotated[float, typer.Option("--held-back", help="Share of the prompts.")] = 0.1,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Train a reward model on preferences, and say how good it is on pairs held back."""
    from clusterops.cli import output as printer
    from rlhf import reward_model
    from rlhf.tasks.task import TaskInvalid

    if width % 8:
        raise errors.CommandError(f"--width {width} is no multiple of 8", code=errors.USAGE)
    settings = reward_model.Settings(
        width=width,
        layers=layers,
        context=context,
        steps=steps,
        lr=lr,
        held_back=held_back,
        seed=seed,
    )
    try:
        every = reward_model.read_pairs(pairs)
        rest, held = reward_model.hold_back(every, held_back)
    except TaskInvalid as error:
        way_out = 'each line is {"prompt": ..., "chosen": ..., "rejected": ...}'
        raise errors.CommandError(str(error), way_out) from None
    printer.say(f"{len(rest)} pairs to train on, {len(held)} held back")
    if cut := reward_model.cut_short(every, context):
        printer.say(
            f"{cut} of {len(every)} pairs have a text beyond {context} bytes, whose beginning will not "
            "count: --context takes more of it"
        )

    def told(step: int, loss: float) -> None:
        if (step + 1) % max(1, steps // 10) == 0:
            printer.say(f"step {step + 1}/{steps}  loss {loss:.3f}")

    model = reward_model.train(rest, settings, told)
    quality = reward_model.measure(model, held)
    model.save(target, quality)
    _show_quality(quality, output)
    printer.say(f"to use it: grader.kind=reward-model grader.model={target}")


def _show_quality(quality: Any, output: Format) -> None:
    from clusterops.cli import output as printer

    if output is Format.JSON:
        bins = [one._asdict() for one in quality.bins]
        printer.write_json(quality._asdict() | {"bins": bins})
        return
    printer.write(
        f"held back: accuracy {quality.accuracy:.3f} of {quality.pairs} pairs, log loss "
        f"{quality.log_loss:.3f}, calibration error {quality.calibration_error:.3f}"
    )
    for one in quality.bins:
        printer.write(
            f"  {one.pairs:5d} pairs: {one.confidence:.2f} sure, {one.accuracy:.2f} right"
        )


def _named(name: str, value: Path | None) -> list[str]:
    return [] if value is None else [name, str(value)]
