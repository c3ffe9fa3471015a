"""`logs`: what a job's ranks printed, with what befell the job in between."""

import sys
from typing import Annotated, Any

import typer

from clusterops.cli.options import Context, Job, Kubeconfig, Namespace

# Without --rank: the first rank that there is, which is rank 0 unless its pod is gone.
UNSAID = [0]


def logs(
    job: Job,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the job ends, across attempts.")
    ] = False,
    rank: Annotated[
        list[int] | None, typer.Option(min=0, help="Rank of a pod [default: 0]; may be repeated.")
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Every rank.")] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Number of the attempt [default: the last].")
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Only so many last lines of each rank.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only what is newer than this: 90s, 10m, 1h30m."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Pass control characters of the job through.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Print what a job printed, and, on standard error, what befell it.

    With -f the exit code is the job's: 0 succeeded, 100 failed, 103 cancelled.
    """
    from clusterops.cli import connection
    from clusterops.cli.errors import USAGE, CommandError

    if follow and attempt is not None:
        raise CommandError(
            "an attempt of the past cannot be followed", "leave --attempt or -f out", USAGE
        )
    if all_ranks and rank:
        raise CommandError("--all-ranks and --rank exclude each other", "", USAGE)
    ranks = None if all_ranks else rank or UNSAID
    write = _writer(
        prefixed=ranks is None or len(ranks) > 1, raw=raw, oldest=_oldest(since) if since else None
    )

    async def work(session: connection.Session) -> int:
        from clusterops.cli import jobs, log_stream

        found = await jobs.find(session, job)
        current = (found.get("status") or {}).get("attempt") or 0
        if follow:
            follower = log_stream.Follower(session, job, ranks=ranks, write=write, tail=tail)
            return await follower.run(current)
        await _print_once(session, found, attempt or current, ranks, tail, write)
        return 0

    code = connection.run(connection.Target(kubeconfig, context, namespace), work)
    raise typer.Exit(code)


def _oldest(since: str) -> Any:
    """The moment that a duration before now is."""
    from datetime import UTC, datetime, timedelta

    from clusterops.cli.durations import seconds_of
    from clusterops.cli.errors import USAGE, CommandError

    try:
        # Wall time is the right one here: it is compared with the timestamps of lines.
        return datetime.now(UTC) - timedelta(seconds=seconds_of(since))
    except (ValueError, OverflowError) as error:
        raise CommandError(f"--since: {error}", "--since 10m", USAGE) from error


async def _print_once(
    session: Any,
    job: dict[str, Any],
    attempt: int,
    ranks: list[int] | None,
    tail: int | None,
    write: Any,
) -> None:
    import heapq

    from clusterops.cli import kept_logs, log_stream

    name = job["metadata"]["name"]
    pods = await log_stream.pods_of(session, name)
    chosen = [pod for pod in pods if log_stream.attempt_of(pod) == attempt]
    present = [log_stream.rank_of(pod) for pod in chosen]
    kept = [log for log in kept_logs.of_attempt(session, job, attempt) if log.rank not in present]
    present = sorted([*present, *(log.rank for log in kept)])
    if not present:
        raise _nothing_left(job, attempt, sorted({log_stream.attempt_of(pod) for pod in pods}))
    if ranks is UNSAID and 0 not in present:
        ranks = present[:1]  # rank 0 was ended for another's failure: that one tells why
    for missing in [rank for rank in ranks or [] if rank not in present]:
        raise _no_such_rank(name, attempt, missing, present)
    wanted = [pod for pod in chosen if ranks is None or log_stream.rank_of(pod) in ranks]
    events = [
        line
        for line in await log_stream.events_of(session, job)
        if _within(line.moment, job, attempt)
    ]
    read = await log_stream.read_once(session, wanted, events, tail)
    gone = kept_logs.merged([log for log in kept if ranks is None or log.rank in ranks], tail)
    for line in heapq.merge(read, gone, key=lambda line: line.moment):
        write(line)


def _nothing_left(job: dict[str, Any], attempt: int, kept: list[int]) -> Exception:
    """Why there is nothing to print, and which attempts there is something of."""
    from clusterops.cli import jobs
    from clusterops.cli.errors import FAILED, NOT_FOUND, CommandError

    name = job["metadata"]["name"]
    begun = (job.get("status") or {}).get("attempt") or 0
    if not begun:
        return CommandError(
            f"{name} has printed nothing yet: {jobs.headline(job)}",
            f"clusterops logs -f {name}, or why: clusterops explain {name}",
            FAILED,
        )
    have = ", ".join(map(str, kept))
    return CommandError(
        f"the pods of attempt {attempt} of {name} are gone, and with them what they printed"
        if attempt <= begun
        else f"{name} has had {begun} attempt{'s' if begun > 1 else ''}, not {attempt}",
        f"--attempt: there is {have}" if have else f"clusterops explain {name}",
        NOT_FOUND,
    )


def _no_such_rank(name: str, attempt: int, missing: int, present: list[int]) -> Exception:
    from clusterops.cli.errors import NOT_FOUND, CommandError

    return CommandError(
        f"attempt {attempt} of {name} has no rank {missing}",
        f"--rank: there is {', '.join(map(str, present))}",
        NOT_FOUND,
    )


def _within(moment: Any, job: dict[str, Any], attempt: int) -> bool:
    """Whether an event belongs to an attempt: after the end of the one before, up to its own end."""
    from clusterops.cli.output import parse_time

    attempts = (job.get("status") or {}).get("attempts") or ()
    ends = {each["number"]: parse_time(each.get("endedAt")) for each in attempts}
    before, own = ends.get(attempt - 1), ends.get(attempt)
    last = attempt >= max(ends, default=attempt)
    return (before is None or moment > before) and (last or own is None or moment <= own)


def _writer(*, prefixed: bool, raw: bool, oldest: Any = None) -> Any:
    """Prints lines: those of ranks are data, those about the job are messages. Lines before
    `oldest` are left out.
    """
    from clusterops.api.text import printable
    from clusterops.cli.output import BOLD, coloured

    bold = coloured(sys.stderr)

    def write(line: Any) -> None:
        if oldest is not None and line.moment < oldest:
            return
        if line.rank is None:
            text = printable(f"--- {line.moment.astimezone():%H:%M:%S} {line.text}")
            sys.stdout.flush()  # so that both streams of one terminal stay in order
            print(f"\x1b[{BOLD}m{text}\x1b[0m" if bold else text, file=sys.stderr, flush=True)
            return
        text = line.text if raw else printable(line.text, keep="\t")
        print(f"[rank {line.rank}] {text}" if prefixed else text, flush=True)

    return write
