"""`explain`: why a job is where it is, in one sentence with its numbers, and what would change it."""

from typing import Any

from clusterops.cli.options import Context, Format, Job, Kubeconfig, Namespace, Output


def explain(
    job: Job,
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Why a job is where it is: the cause, who holds what it waits for, what would help."""
    from clusterops.cli import connection, jobs, reasoning
    from clusterops.cli import output as printer

    async def work(session: connection.Session) -> reasoning.Reasoning:
        found = await jobs.find(session, job)
        return await reasoning.about(session, found)

    why = connection.run(connection.Target(kubeconfig, context, namespace), work)
    if output is Format.JSON:
        printer.write_json(_plain(why))
        return
    printer.write(printer.safe(why.sentence))
    for line in why.details:
        printer.write(f"  {printer.safe(line)}")
    if why.would_help:
        printer.write(f"  what would help: {printer.safe(why.would_help)}")
    if why.last_lines:
        printer.write("  the last it printed:")
    for line in why.last_lines:
        printer.write(f"    {printer.safe(line)}")
    if why.logs:
        printer.write(f"  its log: {printer.safe(why.logs)}")


def _plain(why: Any) -> dict[str, Any]:
    return {
        "job": why.job,
        "phase": why.phase,
        "reason": why.reason,
        "sentence": why.sentence,
        "details": list(why.details),
        "wouldHelp": why.would_help,
        "holders": [
            {"namespace": each.namespace, "name": each.name, "amount": each.amount,
             "priority": each.priority, "leaving": each.leaving}
            for each in why.holders
        ],
        "position": why.position,
        "logs": why.logs,
        "lastLines": list(why.last_lines),
    }  # fmt: skip
