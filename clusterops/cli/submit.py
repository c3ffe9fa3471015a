"""`submit`: a manifest, or a command after `--`, becomes a job in its queue."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from clusterops.cli.options import Context, Format, Kubeconfig, Namespace, Output

_WORDS_AFTER_DASHES = "clusterops.words-after-dashes"


class COMMAND_CLASS(TyperCommand):  # noqa: N801 the name by which the table of commands finds it
    """Keeps what stands after `--` apart: there it is a command to run, before it a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_WORDS_AFTER_DASHES] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """As people write it: the arguments themselves say nothing about `--`."""
        del ctx
        return ["[OPTIONS]", "{FILE | -- COMMAND...}"]


def submit(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Manifest of one or several jobs; - reads input."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the job; submitting it again does no harm.")
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="Pods that run at once.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each pod.")] = 0,
    priority: Annotated[str | None, typer.Option(help="Priority class.")] = None,
    queue: Annotated[
        str | None, typer.Option(help="Queue [default: the namespace's only one].")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the command; may be repeated.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Container image; local mode needs none.")
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(metavar="CLAIM", help="Volume claim to save in, mounted at /checkpoints."),
    ] = None,
    grace: Annotated[
        int | None, typer.Option(min=1, help="Seconds to save in when GPUs are taken back.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check, print, create nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Tell what happens until the job ends.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the job has ended.")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="With --wait or --watch: at most so many seconds.")
    ] = None,
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Submit a job: a manifest FILE, or a command after --.

    With --wait or --watch the exit code is the job's: 0 succeeded, 100 failed, 101 not finished in
    time, 103 cancelled.
    """
    from clusterops.cli import connection
    from clusterops.cli.errors import USAGE, CommandError
    from clusterops.cli.job_request import Request

    command = ctx.meta.get(_WORDS_AFTER_DASHES, [])
    if bool(command) == bool(file):
        raise CommandError(
            "submit takes a file or a command, not both" if file else "submit what?",
            "clusterops submit FILE, or: clusterops submit --gpus 1 -- python train.py",
            USAGE,
        )
    if file:
        _refuse_options_beside_file(ctx)
    request = Request(
        command,
        name,
        replicas,
        gpus,
        queue or "",
        priority,
        env or (),
        image,
        checkpoints,
        None,
        grace,
    )
    text = _read(file) if file else ""
    source = str(file)
    if file:
        _manifests(text, source)  # what is wrong with it is said without a cluster at hand

    async def work(session: connection.Session) -> int:
        from clusterops.cli import submission

        if file:
            jobs = [_in_namespace(job, session, namespace) for job in _manifests(text, source)]
        else:
            jobs = [await _from_command(session, request)]
        found = await submission.submit_all(session, jobs, dry_run=dry_run)
        _report(found, output, dry_run, session.usual)
        if dry_run or not (wait or watch):
            return 0
        return await _until_the_end(session, found.done, watch, timeout)

    code = connection.run(connection.Target(kubeconfig, context, namespace), work)
    raise typer.Exit(code)


def _refuse_options_beside_file(ctx: typer.Context) -> None:
    """A manifest says these itself; an option that is silently ignored would be a trap."""
    from clusterops.cli.errors import USAGE, CommandError

    for parameter in (
        "name",
        "replicas",
        "gpus",
        "priority",
        "queue",
        "env",
        "image",
        "checkpoints",
        "grace",
    ):
        source = ctx.get_parameter_source(parameter)
        if source is not None and source.name == "COMMANDLINE":
            raise CommandError(
                f"--{parameter} belongs to a command, not to a file",
                "set it in the file, or submit: -- COMMAND",
                USAGE,
            )


def _read(file: Path) -> str:
    from clusterops.cli.errors import NOT_FOUND, USAGE, CommandError

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"there is no file {file}", "check the path", NOT_FOUND) from None
    except IsADirectoryError:
        raise CommandError(f"{file} is a folder", "name a file in it", USAGE) from None
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{file} is not text: {error.reason}", "save it as UTF-8", USAGE
        ) from None


def _manifests(text: str, source: str) -> list[dict[str, Any]]:
    """The jobs of a file.

    Raises:
        ManifestError: with every problem of the file.
        CommandError: it holds something else.
    """
    from clusterops.api import manifest
    from clusterops.api.names import TRAINING_JOBS
    from clusterops.cli.errors import USAGE, CommandError

    found = manifest.read(text, source)
    for each in found:
        if each.resource != TRAINING_JOBS:
            raise CommandError(
                f"{source}:{each.line}: {each.name} is no TrainingJob; nothing was created",
                f"kubectl apply -f {source}",
                USAGE,
            )
    return [each.value for each in found]


def _in_namespace(job: dict[str, Any], session: Any, asked: str | None) -> dict[str, Any]:
    from clusterops.cli.errors import USAGE, CommandError

    own = job["metadata"].get("namespace")
    if own and asked and own != asked:
        raise CommandError(
            f"the manifest of {job['metadata'].get('name')} names namespace {own}, "
            f"--namespace says {asked}",
            "leave one of them out",
            USAGE,
        )
    return {**job, "metadata": {**job["metadata"], "namespace": own or session.namespace}}


async def _from_command(session: Any, request: Any) -> dict[str, Any]:
    """The job of a command line, checked like a manifest."""
    from clusterops.api.training_job import TrainingJob
    from clusterops.api.validation import problems
    from clusterops.cli import submission
    from clusterops.cli.errors import USAGE, CommandError
    from clusterops.cli.job_request import job_of

    if not request.queue:
        request = request._replace(queue=await submission.only_queue(session))
    if session.local is not None:
        # As processes on this machine: relative paths mean what they mean here.
        request = request._replace(working_directory=str(Path.cwd()))
    elif not request.image:
        raise CommandError(
            "in a cluster a command needs an image to run in", "--image REGISTRY/NAME:TAG", USAGE
        )
    job = job_of(request, session.namespace)
    wrong = problems(TrainingJob, job)
    if wrong:
        raise CommandError("\n".join(map(str, wrong)), "clusterops submit --help", USAGE)
    return job


def _report(found: Any, form: Format, dry_run: bool, usual: str) -> None:
    """Data of what was submitted to standard output; warnings and what to do next to the person."""
    from clusterops.api.names import TRAINING_JOBS
    from clusterops.api.text import printable
    from clusterops.cli import output

    done = found.done
    for warning in dict.fromkeys(found.warnings):
        output.say(f"warning: {warning}")
    for note in found.notes:
        output.say(f"note: {note}")
    if form is Format.JSON and len(done) > 1:
        output.write_json([each.job for each in done])
        return
    for each in done:
        metadata = each.job["metadata"]
        if form in (Format.JSON, Format.YAML):
            output.write_object(each.job, form)
        elif form is Format.NAME:
            kind = f"{TRAINING_JOBS.kind.lower()}.{TRAINING_JOBS.group}"
            output.write(printable(f"{kind}/{metadata['name']}"))
        elif dry_run:
            output.write_object(each.job, "yaml")
        else:
            what = "submitted to" if each.created else "is unchanged in"
            output.write(
                printable(f"{metadata['name']} {what} queue {each.job['spec']['queueName']}")
            )
    if dry_run:
        for line in found.outlook:
            output.say(f"outlook: {line}")
        output.say("nothing was created: dry run")
    elif form in (Format.TABLE, Format.WIDE) and sys.stderr.isatty() and len(done) == 1:
        metadata = done[0].job["metadata"]
        name = metadata["name"]
        if metadata["namespace"] != usual:
            name += f" -n {metadata['namespace']}"
        output.say(f"next: clusterops logs -f {name}   clusterops explain {name}")


async def _until_the_end(session: Any, done: Any, watch: bool, timeout: float | None) -> int:
    """Waits for each job, telling what befalls its attempts; `watch`: and how far it is.

    Returns the exit code of the first that did not succeed.
    """
    from dataclasses import replace

    from clusterops.cli import errors, jobs, last_words, output

    codes = []
    for each in done:
        metadata = each.job["metadata"]
        tell = _teller(metadata["name"], session.usual, watch)
        there = replace(session, namespace=metadata["namespace"])
        try:
            last = await jobs.until_final(
                there, metadata["name"], timeout_seconds=timeout, on_change=tell
            )
        except TimeoutError as error:
            output.say(str(error))
            return errors.JOB_NOT_FINISHED
        codes.append(jobs.outcome(last))
        if last is None:
            output.say(f"{metadata['name']}: it was deleted")
        elif codes[-1] == errors.JOB_FAILED:
            for line in await last_words.of(there, last):
                output.say(f"{metadata['name']}: it printed: {line}")
    return next((code for code in codes if code), errors.DONE)


def _teller(name: str, namespace: str, watch: bool) -> Any:
    """Says what is new in each state of a job; with `watch` steps too."""
    from clusterops.cli import attempt_lines, jobs, output

    seen: list[Any] = [None, ""]

    def tell(job: dict[str, Any]) -> None:
        lines = attempt_lines.told(seen[0], job, namespace=namespace)
        steps = jobs.progress_words(job.get("status") or {})
        if watch and not jobs.phase_of(job).final and steps not in ("", seen[1]):
            lines.append(steps)
        for line in lines:
            output.say(f"{name}: {line}")
        seen[:] = [job, steps]

    return tell
