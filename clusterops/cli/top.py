"""`top`: the GPUs by node and by job, as they are used now, with a sign for each."""

import sys
from typing import Annotated, Any

import typer

from clusterops.cli.options import Context, Format, Kubeconfig, Namespace, Output


def top(
    every: Annotated[
        bool, typer.Option("--all", help="Also jobs that hold no GPU, ended ones too.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Print at most so many nodes, and so many jobs.")
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Show again every second.")] = False,
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show who uses the GPUs: each node's with the letter of the job that holds it, and each job's
    GPU time, useful and lost.
    """
    from clusterops.cli import connection
    from clusterops.cli.errors import USAGE, CommandError

    if output not in (Format.TABLE, Format.WIDE, Format.JSON):
        raise CommandError(f"top cannot be printed as {output}", "-o json", USAGE)

    async def work(session: connection.Session) -> None:
        from clusterops.cli.queue import rounds

        async for again in rounds(watch):
            found, narrowed = await look(session)
            if again:
                sys.stdout.write("\x1b[H\x1b[J")
            show(found, output, limit, every)
            if narrowed:
                _say_narrowed(session.namespace)
            sys.stdout.flush()

    connection.run(connection.Target(kubeconfig, context, namespace), work)


async def look(session: Any) -> tuple[Any, bool]:
    """The usage of the whole cluster, or, True, of one namespace where no more may be seen."""
    import asyncio
    from datetime import UTC, datetime

    from clusterops.api import names
    from clusterops.cli import cluster_view
    from clusterops.cli.usage import usage
    from clusterops.kube.errors import Forbidden

    async def listed(namespace: str | None) -> Any:
        return await asyncio.gather(
            session.client.list(names.PODS, namespace, label_selector=names.LABEL_JOB),
            session.client.list(names.TRAINING_JOBS, namespace),
        )

    nodes = await cluster_view.nodes(session)
    narrowed = False
    try:
        (pods, _), (jobs, _) = await listed(None)
    except Forbidden:
        narrowed = True
        (pods, _), (jobs, _) = await listed(session.namespace)
    # Wall time is the right one here: it is compared with the timestamps of objects.
    return usage(nodes, pods, jobs, datetime.now(UTC)), narrowed


def _say_narrowed(namespace: str) -> None:
    from clusterops.cli import output

    output.say(f"only jobs of namespace {namespace} are counted: others are not yours to see")


def show(found: Any, form: Format, limit: int | None, every: bool) -> None:
    """Prints it; what is left out is said on standard error."""
    from clusterops.cli import output

    jobs = [job for job in found.jobs if every or job.gpus]
    if form is Format.JSON:
        output.write_json(
            {
                "nodes": [_node_json(node) for node in found.nodes[:limit]],
                "jobs": [_job_json(job) for job in jobs[:limit]],
            }
        )
        return
    width = None if form is Format.WIDE else output.terminal_width(sys.stdout)
    output.write(summary(found))
    if found.nodes:
        rows = [
            [node.name, node.picture, f"{node.used}/{node.gpus}", node.state]
            for node in found.nodes[:limit]
        ]
        output.write("\n" + output.table(["NODE", "GPUS", "USED", "STATE"], rows, width=width))
    if jobs:
        columns = ["", "JOB", "USER", "PHASE", "GPUS", "RUNNING", "GPU-SECONDS", "LOST", "STEPS/S"]
        rows = [_row(job) for job in jobs[:limit]]
        output.write("\n" + output.table(columns, rows, width=width))
    left = max(len(jobs) - len(jobs[:limit]), 0) + max(
        len(found.nodes) - len(found.nodes[:limit]), 0
    )
    if left:
        output.say(f"{left} more rows are not shown (--limit {limit})")


def summary(found: Any) -> str:
    """All GPUs in one line."""
    from clusterops.cli.output import counted

    total = sum(node.gpus for node in found.nodes)
    used = sum(node.used for node in found.nodes)
    out = sum(node.gpus - node.used for node in found.nodes if node.state != "Ready")
    holders = sum(1 for job in found.jobs if job.gpus)
    words = f"{counted(total, 'GPU')} on {counted(len(found.nodes), 'node')}: "
    words += f"{used} used by {counted(holders, 'job')}, {max(0, total - used - out)} free"
    return words + (f", {out} out of use" if out > 0 else "")


def _row(job: Any) -> list[str]:
    from clusterops.cli.output import duration, number

    lost = job.lost_gpu_seconds / job.gpu_seconds if job.gpu_seconds else 0.0
    return [
        job.letter,
        f"{job.namespace}/{job.name}",
        job.user,
        job.phase,
        str(job.gpus),
        duration(job.running_seconds) if job.running_seconds else "",
        number(round(job.gpu_seconds)),
        f"{lost:.1%}",
        "" if job.steps_per_second is None else f"{job.steps_per_second:.2f}",
    ]


def _node_json(node: Any) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": node.state,
        "gpus": node.gpus,
        "used": node.used,
        "holders": [{"letter": letter, "gpus": count} for letter, count in node.holders],
    }


def _job_json(job: Any) -> dict[str, Any]:
    return {
        "namespace": job.namespace,
        "name": job.name,
        "user": job.user,
        "phase": job.phase,
        "letter": job.letter,
        "gpus": job.gpus,
        "runningSeconds": job.running_seconds,
        "gpuSeconds": job.gpu_seconds,
        "lostGpuSeconds": job.lost_gpu_seconds,
        "stepsPerSecond": job.steps_per_second,
    }
