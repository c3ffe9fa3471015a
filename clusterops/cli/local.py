"""`up`, `down`, `status`, `doctor`: local mode on this machine."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from clusterops.api.names import ENV_HOME
from clusterops.local import background, checkup, observe
from clusterops.local.background import DOWN_SECONDS
from clusterops.local.errors import NotRunning, StartFailed
from clusterops.local.parts import NodeShape
from clusterops.local.state_folder import StateFolder, default_path
from clusterops.local.up import local_mode
from clusterops.local.waiting import wait_until

HURRY = signal.SIGUSR1

StateDir = Annotated[
    Path | None,
    typer.Option(help=f"State folder [default: ${ENV_HOME}, else the XDG state folder]."),
]
Output = Annotated[str, typer.Option("-o", "--output", help="table or json.")]


def folder_of(state_dir: Path | None) -> StateFolder:
    """The state folder that an option, or its absence, names."""
    return StateFolder(state_dir.absolute() if state_dir else default_path(os.environ))


def up(
    state_dir: StateDir = None,
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Node agents to run.")] = 1,
    gpus: Annotated[
        int | None,
        typer.Option(min=0, max=64, help="Simulated GPUs a node [default: the real ones]."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Go on in the background.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that jobs get to save when local mode goes down.")
    ] = 30.0,
    ready_fd: Annotated[
        int | None, typer.Option(hidden=True, help="Descriptor to say on that everything runs.")
    ] = None,
) -> None:
    """Run a whole cluster on this machine: API server, queue, operator, nodes."""
    folder = folder_of(state_dir)
    if detach:
        _detach(folder, nodes, gpus, grace)
        return
    if nodes > 1 and gpus is None:
        raise typer.BadParameter(
            "several nodes on one machine need --gpus: they cannot share real ones"
        )
    if ready_fd is not None:
        os.set_inheritable(ready_fd, False)
    asyncio.run(_stay_up(folder, NodeShape(nodes, gpus), grace, ready_fd))


def _heed_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """TERM or Ctrl-C ask to stop, for the second time at once; HURRY asks for that by itself: two
    signals of one kind may become one.
    """

    def asked_to_stop() -> None:
        (hurry if stop.is_set() else stop).set()

    def asked_to_hurry() -> None:
        stop.set()
        hurry.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop)
    loop.add_signal_handler(HURRY, asked_to_hurry)


async def _stay_up(
    folder: StateFolder, shape: NodeShape, grace: float, ready_fd: int | None
) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    _heed_signals(stop, hurry)
    screen = observe.screen(sys.stdout)
    bring_up = local_mode(
        folder, shape, narrate=screen.line, environ=os.environ, drain_seconds=grace, hurry=hurry
    )
    # Ctrl-C while coming up cancels the start; afterwards it ends the wait, and leaving drains.
    entering = asyncio.ensure_future(bring_up.__aenter__())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not entering.done():
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        return
    mode = entering.result()
    try:
        screen.ready(next_commands(folder))
        if ready_fd is not None:
            background.say_ready(ready_fd)
        await observe.live(folder, mode.client, screen, stop)
    finally:
        await bring_up.__aexit__(None, None, None)


def next_commands(folder: StateFolder) -> list[str]:
    """What a person types after `up`."""
    home = "" if folder.root == default_path({}) else f"{ENV_HOME}={folder.root} "
    return [
        f"{home}clusterops submit --gpus 1 --name hello -- python -c 'print(\"hello\")'",
        f"{home}clusterops queue",
        f"kubectl --kubeconfig {folder.kubeconfig} get trainingjobs -A",
    ]


def _detach(folder: StateFolder, nodes: int, gpus: int | None, grace: float) -> None:
    folder.create()
    with folder.locked():
        pass  # refuses here, in words, what the background process could only log
    argv = [sys.executable, "-m", "clusterops.cli", "up", f"--state-dir={folder.root}"]
    argv += [f"--nodes={nodes}", f"--grace={grace}"] + (
        [f"--gpus={gpus}"] if gpus is not None else []
    )
    process = background.start(folder, argv)
    typer.echo(
        f"local mode runs in the background, process {process.pid}; stop it with: clusterops down"
    )
    for command in next_commands(folder):
        typer.echo(f"  {command}")


def down(
    state_dir: StateDir = None,
    now: Annotated[bool, typer.Option("--now", help="Do not let running jobs save first.")] = False,
) -> None:
    """Stop local mode; running jobs save first and go on at the next `up`."""
    folder = folder_of(state_dir)
    pid = folder.running_pid()
    if pid is None:
        typer.echo(f"local mode does not run in {folder.root}", err=True)
        return
    os.kill(pid, HURRY if now else signal.SIGTERM)
    if not wait_until(lambda: not folder.is_locked(), DOWN_SECONDS):
        raise StartFailed(
            f"process {pid} did not stop within {DOWN_SECONDS:.0f} s",
            f"look at {folder.logs}, and end it with: kill -9 {pid}",
        )
    typer.echo("local mode is down")


def status(state_dir: StateDir = None, output: Output = "table") -> None:
    """Say whether local mode runs, and how its parts, nodes and jobs are."""
    folder = folder_of(state_dir)
    if not folder.is_locked():
        raise NotRunning(str(folder.root))
    seen = asyncio.run(observe.observe(folder))
    typer.echo(json.dumps(seen.to_json(), indent=2) if output == "json" else observe.render(seen))


def doctor(state_dir: StateDir = None, output: Output = "table") -> None:
    """Check this machine and the state folder; say what is wrong and how to mend it."""
    results = asyncio.run(checkup.run(folder_of(state_dir), os.environ))
    if output == "json":
        typer.echo(json.dumps([result.to_json() for result in results], indent=2))
    else:
        typer.echo(checkup.render(results))
    if not all(result.ok for result in results):
        raise typer.Exit(1)
