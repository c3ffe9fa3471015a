"""Commands of the group `rlhf` that generate: `replay` a rollout of a run, `serve` a model."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from clusterops.cli import errors
from clusterops.cli.options import Format, Output

KEY_FILE = "rlhf-serve.key"
_SHOWN_TOKENS = 24


def replay(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of the run.")],
    rollout: Annotated[
        str,
        typer.Argument(
            metavar="ROLLOUT_ID", help="Slot as `samples` shows it: s12, or s12/1 for a redraw."
        ),
    ],
    tolerance: Annotated[
        float,
        typer.Option(min=0, help="Largest difference of a log-probability that is no difference."),
    ] = 1e-4,
    output: Output = Format.TABLE,
) -> int:
    """Generate one rollout of a run again, alone, and compare tokens and log-probabilities.

    A response is a function of weights, prompt and seed: when it does not come out again, the first
    difference says what to look for. Exit code 1 when it differs.
    """
    from clusterops.cli import output as printer

    with _needs_torch():
        from rlhf.engine_replay_run import NotReplayable, replay_sample
    try:
        found, policy, outcome = replay_sample(run_folder, rollout, tolerance)
    except NotReplayable as error:
        way_out = "`clusterops rlhf samples RUN_DIR` shows the last step's"
        raise errors.CommandError(str(error), way_out, errors.NOT_FOUND) from None
    if output is Format.JSON:
        printer.write_json(_replay_json(found, outcome))
    else:
        for line in _replay_lines(found, outcome, policy.vocabulary.decode):
            printer.write(printer.safe(line))
    return errors.DONE if outcome.same else errors.FAILED


def _replay_json(found: Any, outcome: Any) -> dict[str, Any]:
    recorded = found.response
    return {
        "seq": found.seq,
        "draw": found.draw,
        "policyVersion": found.version,
        "same": outcome.same,
        "sentence": outcome.sentence,
        "firstDifference": outcome.first_difference,
        "worstLogprobDifference": outcome.worst,
        "prompt": recorded.prompt_ids,
        "recorded": {
            "tokens": recorded.response_ids,
            "logprobs": recorded.logprobs,
            "finishReason": recorded.finish_reason,
        },
        "again": {
            "tokens": outcome.tokens,
            "logprobs": outcome.logprobs,
            "finishReason": outcome.finish_reason,
        },
    }


def _replay_lines(found: Any, outcome: Any, decode: Callable[[list[int]], str]) -> list[str]:
    """The verdict, the texts, and the tokens side by side: all, or those around a difference."""
    recorded = found.response
    draw = f", draw {found.draw}" if found.draw else ""
    lines = [
        f"s{found.seq}{draw}, policy version {found.version}: {outcome.sentence}",
        f"  prompt    {recorded.prompt or decode(recorded.prompt_ids)}",
        f"  recorded  {decode(recorded.response_ids)}",
        f"  again     {decode(outcome.tokens)}",
        "  PLACE   TOKEN   LOGPROB      AGAIN   LOGPROB   DIFFERENCE",
    ]
    length = max(len(recorded.response_ids), len(outcome.tokens))
    around = outcome.first_difference or 0
    first = max(0, min(around - _SHOWN_TOKENS // 2, length - _SHOWN_TOKENS))
    last = min(length, first + _SHOWN_TOKENS)
    for place in range(first, last):
        token, logprob = _at(recorded.response_ids, place), _at(recorded.logprobs, place)
        again, other = _at(outcome.tokens, place), _at(outcome.logprobs, place)
        apart = "" if None in (logprob, other) else f"{abs(logprob - other):.1e}"
        mark = "" if token == again else "   <- differs"
        lines.append(
            f"  {place:5}  {_cell(token, 6)} {_cell(logprob, 9)}  {_cell(again, 9)} "
            f"{_cell(other, 9)}   {apart:>10}{mark}"
        )
    if last - first < length:
        lines.append(f"  tokens {first} to {last - 1} of {length}; all of them with -o json")
    return lines


def _at(row: Any, place: int) -> Any:
    return row[place] if place < len(row) else None


def _cell(value: float | None, width: int) -> str:
    if value is None:
        return "-".rjust(width)
    return f"{value:{width}.4f}" if isinstance(value, float) else f"{value:{width}}"


Checkpoint = Annotated[
    Path,
    typer.Argument(
        metavar="CHECKPOINT",
        help="Folder of a run (its newest policy), a weights file or checkpoint in it, or a "
        "model's folder in the Hugging Face layout.",
    ),
]
Host = Annotated[str, typer.Option(help="Address; other machines' needs a key file and TLS.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Name = Annotated[
    str | None,
    typer.Option(help="What clients call the model [default: the run's name, or the folder's]."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the API key that clients must send, readable by you alone [default: "
        f"{KEY_FILE} in the state folder, made at the first start]."
    ),
]
NoKey = Annotated[
    bool, typer.Option("--no-key", help="Let every user of this machine ask, without a key.")
]
Certificate = Annotated[Path | None, typer.Option(help="PEM file; then it is https.")]
CertificateKey = Annotated[Path | None, typer.Option(help="PEM file with the key to it.")]
Seats = Annotated[int, typer.Option(min=1, max=2048, help="Responses that are computed at once.")]
CacheMib = Annotated[
    int, typer.Option("--cache-mib", min=1, help="Most memory for keys and values.")
]
Most = Annotated[
    int, typer.Option("--most", min=1, help="Most responses under way; more are told to wait.")
]
ResponseSeconds = Annotated[
    float, typer.Option(min=0.1, help="Longest time that a request may take.")
]
DrainSeconds = Annotated[
    float, typer.Option(min=0, help="Time for what is under way when the server is stopped.")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="CPU threads [default: the run's model.threads, else all cores]."),
]


def serve(
    checkpoint: Checkpoint,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = None,
    key_file: KeyFile = None,
    no_key: NoKey = False,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    seats: Seats = 64,
    cache_mib: CacheMib = 256,
    most: Most = 256,
    response_seconds: ResponseSeconds = 600.0,
    drain_seconds: DrainSeconds = 30.0,
    threads: Threads = None,
    output: Output = Format.TABLE,
) -> None:
    """Serve a model with OpenAI's interface: /v1/completions and /v1/chat/completions, streaming.

    Any client of OpenAI's works; the lines printed at the start show how. It listens on this machine
    alone. Stopped once (Ctrl-C, SIGTERM) it answers what is under way and takes nothing new; stopped
    twice it ends at once.
    """
    from clusterops.cli import output as printer

    if no_key and key_file is not None:
        raise typer.BadParameter("give --key-file or --no-key, not both")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    printer.say(f"loading {checkpoint}")
    # After the line above: torch takes seconds to import.
    with _needs_torch():
        from rlhf.serving import command
        from rlhf.serving.loading import NoModel
        from rlhf.serving.run import CannotServe, ServeConfig

    config = ServeConfig(
        host=host,
        port=port,
        key_file=None if no_key else key_file or _own_key_file(),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        most_under_way=most,
        response_seconds=response_seconds,
        drain_seconds=drain_seconds,
        engine=command.engine_settings(seats, cache_mib << 20),
    )

    def ready(address: command.Address) -> None:
        if output is Format.JSON:
            sys.stdout.write(f"{json.dumps(address.as_json())}\n")
            sys.stdout.flush()
        else:
            printer.say("\n".join(address.lines()))

    try:
        command.run(checkpoint, config, name=name, threads=threads, ready=ready, say=printer.say)
    except NoModel as error:
        way_out = "name a run that has trained (`clusterops rlhf train`), or a model's folder"
        raise errors.CommandError(str(error), way_out, errors.NOT_FOUND) from None
    except CannotServe as error:
        raise errors.CommandError(str(error)) from None


@contextmanager
def _needs_torch() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        way_out = "pip install 'clusterops[rlhf]'"
        raise errors.CommandError(f"this needs the package {error.name}", way_out) from error


def _own_key_file() -> Path:
    """The key of this user's servers, made when there is none yet."""
    from clusterops.local.state_folder import default_path
    from rlhf.serving import key

    return key.ensure(default_path(os.environ) / KEY_FILE)
