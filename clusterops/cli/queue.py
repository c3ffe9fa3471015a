"""`queue`: what runs, what waits and why - a Table of the server, without the objects behind it."""

import sys
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from clusterops.api.names import TRAINING_JOBS
from clusterops.cli.options import Context, Format, Kubeconfig, Namespace, Output

PAGE_ROWS = 2500
REFRESH_SECONDS = 1.0
ACCEPT_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

_NAME_PREFIX = f"{TRAINING_JOBS.kind.lower()}.{TRAINING_JOBS.group}/"

# What moves comes first, then what waits, then what is over.
_ORDER = (
    "Running",
    "Checkpointing",
    "Starting",
    "Admitted",
    "Requeued",
    "Pending",
    "",
    "Suspended",
)


def queue(
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Jobs of every namespace.")
    ] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only jobs that you submitted.")] = False,
    state: Annotated[
        list[str] | None, typer.Option(help="Only jobs in this phase; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Print at most so many jobs.")] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show again every second.")] = False,
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """List jobs: what runs, what waits and why."""
    from clusterops.cli import connection
    from clusterops.cli.errors import USAGE, CommandError

    if output is Format.YAML:
        raise CommandError("the queue is no object", "-o json, wide or name", USAGE)
    wanted = _phases(state or [])

    async def work(session: connection.Session) -> None:
        space = None if all_namespaces else session.namespace
        user = await _caller(session) if mine else None
        async for again in rounds(watch):
            columns, rows = await fetch(session, space, user)
            rows = arrange(columns, rows, wanted)
            if again:
                sys.stdout.write("\x1b[H\x1b[J")
            show(columns, rows, output, limit, space, mine=mine)
            sys.stdout.flush()

    connection.run(connection.Target(kubeconfig, context, namespace), work)


def _phases(words: list[str]) -> list[str]:
    """The phases meant, whatever their case."""
    from clusterops.api.reasons import Phase
    from clusterops.api.spelling import closest
    from clusterops.cli.errors import USAGE, CommandError

    by_lower_case = {str(phase).lower(): str(phase) for phase in Phase}
    for word in words:
        if word.lower() not in by_lower_case:
            meant = closest(word, list(by_lower_case.values()))
            known = ", ".join(by_lower_case.values())
            hint = f"did you mean {meant}?" if meant else f"one of {known}"
            raise CommandError(f"there is no phase {word}", hint, USAGE)
    return [by_lower_case[word.lower()] for word in words]


async def _caller(session: Any) -> str:
    from clusterops.cli import identity
    from clusterops.cli.errors import FAILED, CommandError

    user = await identity.user_of(session)
    if not user:
        raise CommandError(
            "the server does not say who you are, so --mine cannot tell your jobs from others'",
            "leave --mine out",
            FAILED,
        )
    return user


async def rounds(watch: bool) -> AsyncIterator[bool]:
    """Once, or again and again while somebody watches; whether the screen is to be cleared.

    A pipe has no screen: who reads JSON from it wants nothing else.
    """
    import asyncio

    clear = watch and sys.stdout.isatty()
    yield clear
    while watch:
        await asyncio.sleep(REFRESH_SECONDS)
        yield clear


async def fetch(
    session: Any, namespace: str | None, user: str | None = None
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Column definitions and rows of all jobs, page by page; NAMESPACE leads when there are many.

    `user`: only what that user submitted. Rows come without objects; their metadata must come along
    where the namespace, or who submitted the job, is wanted: it is said only there.
    """
    from clusterops.cli import identity, table_pages
    from clusterops.kube.errors import Gone
    from clusterops.kube.transport import resource_path

    path = resource_path(TRAINING_JOBS, namespace)
    bare = namespace is not None and user is None
    query = {"includeObject": "None" if bare else "Metadata", "limit": str(PAGE_ROWS)}
    columns: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    while True:
        try:
            body = await session.client.raw_get(path, query=query, accept=ACCEPT_TABLE)
        except Gone:
            if "continue" not in query:
                raise
            # The snapshot behind the pages is too old by now: begin again, in one page.
            query, rows = {"includeObject": query["includeObject"]}, []
            continue
        page = table_pages.decode(body)
        columns = columns or page.columns
        if user is not None:
            page = page.only(lambda annotations: identity.submitter(annotations) == user)
        rows += page.rows if namespace else page.rows_with_namespace()
        if not page.continue_token:
            break
        query["continue"] = page.continue_token
    return ([] if namespace else [{"name": "Namespace"}]) + columns, rows


def arrange(
    columns: list[dict[str, Any]], rows: list[list[Any]], phases: list[str]
) -> list[list[Any]]:
    """The rows wanted, those in motion first; otherwise in the server's order, by name."""
    at = next((place for place, each in enumerate(columns) if each["name"] == "Phase"), None)
    if at is None:
        return rows
    ranks = {phase: rank for rank, phase in enumerate(_ORDER)}
    chosen = [row for row in rows if not phases or (row[at] or "Pending") in phases]
    return sorted(chosen, key=lambda row: ranks.get(row[at] or "", len(_ORDER)))


def show(
    columns: list[dict[str, Any]],
    rows: list[list[Any]],
    form: Format,
    limit: int | None,
    namespace: str | None,
    *,
    mine: bool = False,
) -> None:
    """Prints the jobs in the form asked for; what was left out is said on standard error."""
    from clusterops.api.text import printable
    from clusterops.cli import output

    shown = rows[:limit]
    if form is Format.JSON:
        keys = [_key(column["name"]) for column in columns]
        output.write_json([dict(zip(keys, row, strict=True)) for row in shown])
        return
    if form is Format.NAME:
        at = next(place for place, column in enumerate(columns) if column["name"] == "Name")
        for row in shown:
            output.write(f"{_NAME_PREFIX}{printable(str(row[at]))}")
        return
    if not rows:
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        whose = " of yours" if mine else ""
        output.say(f"no jobs{whose} {where}; submit one with: clusterops submit FILE")
        return
    narrow = [
        place
        for place, column in enumerate(columns)
        if form is Format.WIDE or not column.get("priority")
    ]
    headings = [columns[place]["name"].upper() for place in narrow]
    cells = [["" if row[at] is None else str(row[at]) for at in narrow] for row in shown]
    phase = headings.index("PHASE") if "PHASE" in headings else -1
    style = (
        (lambda column, cell: output.phase_style(cell) if column == phase else "")
        if output.coloured(sys.stdout)
        else None
    )
    width = None if form is Format.WIDE else output.terminal_width(sys.stdout)
    output.write(output.table(headings, cells, width=width, style=style))
    if len(shown) < len(rows):
        output.say(f"{len(rows) - len(shown)} more jobs are not shown (--limit {limit})")


def _key(heading: str) -> str:
    """A heading as a JSON field: `GPUs` -> `gpus`, `Priority Class` -> `priorityClass`."""
    first, *rest = heading.split()
    lead = first.lower() if first[:2].isupper() else first[:1].lower() + first[1:]
    return lead + "".join(word[:1].upper() + word[1:] for word in rest)
