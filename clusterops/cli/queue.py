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
        async for again in _rounds(watch):
            columns, rows = await fetch(session, space)
            rows = arrange(columns, rows, wanted)
            if again:
                sys.stdout.write("\x1b[H\x1b[J")
            show(columns, rows, output, limit, space)
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


async def _rounds(watch: bool) -> AsyncIterator[bool]:
    import asyncio

    yield watch
    while watch:
        await asyncio.sleep(REFRESH_SECONDS)
        yield True


async def fetch(
    session: Any, namespace: str | None
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Column definitions and rows of all jobs, page by page; NAMESPACE leads when there are many.

    Rows come without objects; with several namespaces their metadata must come along, since only
    there the namespace is said.
    """
    from clusterops.cli import table_pages
    from clusterops.kube.errors import Gone
    from clusterops.kube.transport import resource_path

    path = resource_path(TRAINING_JOBS, namespace)
    query = {"includeObject": "None" if namespace else "Metadata", "limit": str(PAGE_ROWS)}
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
        output.say(f"no jobs {where}; submit one with: clusterops submit FILE")
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
