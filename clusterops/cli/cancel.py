"""`cancel`: asks jobs to stop, after a last checkpoint unless told otherwise. The objects stay."""

import sys
from typing import Annotated, Any

import typer

from clusterops.cli.options import Context, Jobs, Kubeconfig, Namespace


def cancel(
    jobs: Jobs,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for a checkpoint.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when they have stopped.")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="With --wait: give up after so many seconds.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Stop jobs, after a last checkpoint. Cancelling again does no harm."""
    from clusterops.cli import connection

    names = list(dict.fromkeys(jobs))
    if len(names) > 1 and not yes and sys.stdin.isatty():
        typer.confirm(f"Cancel {len(names)} jobs?", abort=True, err=True)

    async def work(session: connection.Session) -> None:
        from clusterops.cli import jobs as job_states

        found = [await job_states.find(session, name) for name in names]
        for job in found:
            await _stop(session, job, "Now" if now else "Checkpoint")
        if wait:
            for job in found:
                name = job["metadata"]["name"]
                await job_states.until_final(session, name, timeout_seconds=timeout)

    connection.run(connection.Target(kubeconfig, context, namespace), work)


async def _stop(session: Any, job: dict[str, Any], how: str) -> None:
    """Writes `spec.stop`, unless the job is over or was told so already. Now outranks Checkpoint."""
    from clusterops.api.names import TRAINING_JOBS
    from clusterops.cli import output
    from clusterops.cli.jobs import phase_of

    name, told = job["metadata"]["name"], job["spec"].get("stop")
    if phase_of(job).final:
        output.say(f"{name} has ended already: {phase_of(job)}")
        return
    if told == how or told == "Now":
        output.say(f"{name} is being cancelled already")
        return
    await session.client.patch(
        TRAINING_JOBS, job["metadata"]["namespace"], name, {"spec": {"stop": how}}
    )
    saves = (job["spec"].get("checkpoint") or {}).get("directory")
    waits = " after a last checkpoint" if saves else ""
    output.say(f"{name} stops{' at once' if how == 'Now' else waits}")
