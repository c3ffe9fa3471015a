"""Brings local mode up in a state folder, and takes it down again.

Up: folder, lock, ports, certificates, tokens; the API server; then the other parts; then the queues
that a first job needs. Down: the nodes are drained as `kubectl drain` does it, so that running jobs
save and give back what they hold, and only then the parts end. The next `up` lets the nodes take
pods again and the jobs go on from their checkpoints.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterops.api import names
from clusterops.kube import connect, errors
from clusterops.kube.client import Client
from clusterops.local import bootstrap, certificates, credentials, machines, observe, parts
from clusterops.local.drain import drain, undrain
from clusterops.local.errors import PortTaken, StartFailed
from clusterops.local.parts import APISERVER, NodeShape
from clusterops.local.state_folder import StateFolder, write_atomically
from clusterops.local.supervisor import Supervisor

API_READY_SECONDS = 20.0
NODES_READY_SECONDS = 20.0
PORTS_FREE_SECONDS = 5.0
POLL_SECONDS = 0.05

Narrate = Callable[[str], None]


@dataclass(frozen=True)
class LocalMode:
    """A running local mode, as handed to whoever brought it up."""

    folder: StateFolder
    shape: NodeShape
    client: Client
    supervisor: Supervisor


@contextlib.asynccontextmanager
async def local_mode(
    folder: StateFolder,
    shape: NodeShape,
    *,
    narrate: Narrate,
    environ: Mapping[str, str],
    drain_seconds: float = 30.0,
    hurry: asyncio.Event | None = None,
) -> AsyncIterator[LocalMode]:
    """Local mode for as long as the block lasts; leaving drains the nodes and ends every process.

    `hurry`, once set, cuts the drain short: what still runs is ended at once.

    Raises:
        LocalModeError: the folder is in use or unusable, a port is taken, or a part does not start.
    """
    folder.create()
    shape = dataclasses.replace(
        shape, driver=machines.DRIVER.exists(), kernel_log=machines.readable()
    )
    with folder.locked():
        ports = await _free_ports(folder)
        _prepare(folder, shape, ports)
        supervisor = Supervisor(folder, _part_environment(environ, folder))
        client = None
        try:
            api, *others = parts.parts(folder, ports, shape, os.getpid())
            narrate("starting the API server")
            await supervisor.start(api)
            connection = connect.load(folder.kubeconfig)
            client = Client(connection.transport)
            await _api_ready(client, supervisor)
            narrate(f"starting the operator, the queue and {shape.nodes} node agents")
            for part in others:
                await supervisor.start(part)
            await bootstrap.ensure_queues(client, shape)
            await _nodes_ready(client, supervisor, shape)
            folder.ready_mark.touch()
            yield LocalMode(folder, shape, client, supervisor)
            narrate("draining the nodes: running jobs save first")
            await drain(
                client,
                shape.node_names(),
                deadline_seconds=drain_seconds,
                hurry=hurry or asyncio.Event(),
            )
        finally:
            # Also on failure and Ctrl-C: no process is left behind.
            folder.ready_mark.unlink(missing_ok=True)
            if client is not None:
                await client.close()
            await supervisor.stop()


def _prepare(folder: StateFolder, shape: NodeShape, ports: Mapping[str, int]) -> None:
    now = datetime.datetime.now(datetime.UTC)
    files = certificates.ensure(folder.pki, now)
    credentials.ensure_operator_key(folder.operator_key)
    part_names = parts.part_names(shape)
    tokens = credentials.ensure_tokens(folder, part_names)
    server = f"https://127.0.0.1:{ports['apiserver']}"
    targets = {credentials.ADMIN: folder.kubeconfig}
    for part in part_names:
        targets[credentials.part_user(part)] = folder.part_kubeconfig(part)
    for user, path in targets.items():
        credentials.write_kubeconfig(
            path, server=server, authority=files.authority, user=user, token=tokens[user]
        )
    for node in shape.node_names():
        folder.node(node).mkdir(mode=0o700, parents=True, exist_ok=True)
        if shape.gpus_per_node is not None:
            machines.machine(folder, node).power_on()
    simulated = shape.gpus_per_node is not None
    write_atomically(folder.remediation, json.dumps(machines.remediation(folder, simulated)) + "\n")


async def _free_ports(folder: StateFolder) -> dict[str, int]:
    # A supervisor that was killed takes its parts along, but not in the same instant.
    deadline = time.monotonic() + PORTS_FREE_SECONDS
    while True:
        try:
            return folder.fixed_ports()
        except PortTaken:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(POLL_SECONDS)


def _part_environment(environ: Mapping[str, str], folder: StateFolder) -> dict[str, str]:
    """The parts see this environment, with this interpreter's folder first on the PATH: `python` in
    a job's command is then the Python that clusterops is installed in.
    """
    result = {name: value for name, value in environ.items() if name != "KUBECONFIG"}
    interpreter = str(Path(sys.executable).parent)
    result["PATH"] = os.pathsep.join([interpreter, environ.get("PATH", os.defpath)])
    result[names.ENV_HOME] = str(folder.root)
    if sys.prefix != sys.base_prefix:
        result["VIRTUAL_ENV"] = sys.prefix
    return result


async def _api_ready(client: Client, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + API_READY_SECONDS
    while True:
        try:
            await client.raw_get("/readyz")
            return
        except errors.Retryable as error:
            _give_up_when_ended(supervisor, APISERVER)
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"the API server did not answer within {API_READY_SECONDS:.0f} s: {error}\n"
                    f"{supervisor.log_tail(APISERVER)}",
                    "see its log in the state folder",
                ) from error
        await asyncio.sleep(POLL_SECONDS)


async def _nodes_ready(client: Client, supervisor: Supervisor, shape: NodeShape) -> None:
    deadline = time.monotonic() + NODES_READY_SECONDS
    waiting = list(shape.node_names())
    while waiting:
        for node in list(waiting):
            with contextlib.suppress(errors.NotFound, errors.Retryable):
                if observe.is_ready(await client.get(names.NODES, None, node)):
                    waiting.remove(node)
        if waiting and time.monotonic() > deadline:
            part = parts.agent_part(waiting[0])
            raise StartFailed(
                f"node {waiting[0]} is not ready after {NODES_READY_SECONDS:.0f} s\n"
                f"{supervisor.log_tail(part)}",
                "see the agent's log in the state folder",
            )
        if waiting:
            await asyncio.sleep(POLL_SECONDS)
    await undrain(client, shape.node_names())


def _give_up_when_ended(supervisor: Supervisor, part: str) -> None:
    code = supervisor.exit_of(part)
    if code is not None:
        raise StartFailed(
            f"the {part} ended with code {code} while it was starting:\n{supervisor.log_tail(part)}",
            "its last lines above say why; the whole log is in the state folder",
        )
