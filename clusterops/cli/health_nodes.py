"""How the nodes' GPUs are: `health nodes`, `health incidents`, `health tickets`."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from clusterops.cli.options import Context, Kubeconfig


class Form(StrEnum):
    """How it is printed."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[Form, typer.Option("-o", "--output", help="table or json.")]
OneNode = Annotated[str | None, typer.Argument(metavar="[NODE]", help="Only this node.")]


def nodes(
    node: OneNode = None,
    output: Output = Form.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """How each node's GPUs are, and what is being done about those that are not well."""
    from clusterops.cli import health_view as view

    rows = view.node_rows(_seen(node, kubeconfig, context))
    _show(rows, view.NODE_COLUMNS, output, "no node has a health daemon")
    _next(view.next_command(rows), output)


def incidents(
    node: OneNode = None,
    every: Annotated[bool, typer.Option("-A", "--all", help="Ended ones, too.")] = False,
    output: Output = Form.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What was seen on the nodes' GPUs, what it calls for, and why."""
    from clusterops.cli import health_view as view

    rows = view.incident_rows(_seen(node, kubeconfig, context), ended=every)
    ended = "" if every else "; ended ones: clusterops health incidents -A"
    _show(rows, view.INCIDENT_COLUMNS, output, f"no incident is open{ended}")
    code = next((row["xid"] for row in rows if row["xid"]), None)
    _next(f"clusterops health explain {code}" if code else "", output)


def tickets(
    node: OneNode = None,
    output: Output = Form.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Which boards wait for the vendor, and under which ticket."""
    from clusterops.cli import health_view as view

    rows = view.ticket_rows(_seen(node, kubeconfig, context))
    _show(rows, view.TICKET_COLUMNS, output, "no ticket is open")
    _next(f"clusterops health incidents {rows[0]['node']}" if rows else "", output)


def _seen(node: str | None, kubeconfig: Any, context: str | None) -> list[Any]:
    """The NodeHealths with their Nodes, by name."""
    from clusterops.api import names
    from clusterops.cli import connection
    from clusterops.cli.errors import NOT_FOUND, CommandError

    async def work(session: connection.Session) -> list[Any]:
        healths, _ = await session.client.list(names.NODE_HEALTHS)
        nodes, _ = await session.client.list(names.NODES)
        known = {each["metadata"]["name"]: each for each in nodes}
        pairs = [(each, known.get(each["metadata"]["name"])) for each in healths]
        return sorted(pairs, key=lambda pair: str(pair[0]["metadata"]["name"]))

    found = connection.run(connection.Target(kubeconfig, context), work)
    if node is None:
        return found
    chosen = [pair for pair in found if pair[0]["metadata"]["name"] == node]
    if not chosen:
        way_out = "see those that have one: clusterops health nodes"
        raise CommandError(f"node {node} has no health daemon", way_out, NOT_FOUND)
    return chosen


def _show(rows: list[Any], columns: tuple[str, ...], form: Form, none: str) -> None:
    from clusterops.cli import output

    if form is Form.JSON:
        output.write_json(rows)
        return
    if not rows:
        output.say(none)
        return
    cells = [[str(row[name.lower()] or "-") for name in columns] for row in rows]
    output.write(output.table(columns, cells))


def _next(command: str, form: Form) -> None:
    from clusterops.cli import output

    if command and form is Form.TABLE:
        output.say(f"next: {command}")
