"""Runs one part as a process: `operator`, `agent`, and, for local mode, `apiserver` and `queueing`."""

import asyncio
import ctypes
import dataclasses
import datetime
import logging
import os
import signal
import socket
import sys
import tempfile
import urllib.parse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterops.cli.errors import CommandError

if TYPE_CHECKING:
    from clusterops.operator.run import OperatorConfig

PR_SET_PDEATHSIG = 1
# Shorter than what the supervisor of local mode gives a part to stop.
STOP_GRACE_SECONDS = 5.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

DieWith = Annotated[
    int | None,
    typer.Option(hidden=True, help="End at once when this process, the parent, is gone."),
]
Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig [default: $KUBECONFIG, ~/.kube/config, in-cluster].")
]
BootIdFile = Annotated[
    Path | None, typer.Option(hidden=True, help="The boot that a simulated machine is in.")
]


def die_with_parent(parent: int | None) -> None:
    """Has the kernel kill this process when `parent` dies, also by SIGKILL.

    Raises:
        SystemExit: the parent is gone already.
    """
    if parent is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have died before the call.
    if os.getppid() != parent:
        raise SystemExit("the process that started this one is gone")


def run(
    serve: Callable[[asyncio.Event], Awaitable[None]],
    parent: int | None,
    *,
    refusals: tuple[type[Exception], ...],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Runs a part until SIGTERM or SIGINT, with its log on standard error.

    `refusals` are the errors in which the part says in words why it cannot run.
    """
    die_with_parent(parent)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)

    async def until_told() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await serve(stop)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            runner.run(until_told())
        except refusals as refusal:
            raise CommandError(str(refusal)) from refusal


def apiserver(
    database: Annotated[Path, typer.Option(help="SQLite file with every object.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")],
    tls_certificate: Annotated[Path, typer.Option()],
    tls_key: Annotated[Path, typer.Option()],
    tokens: Annotated[Path, typer.Option(help="JSON: token -> user and groups, mode 0600.")],
    pod_logs: Annotated[Path, typer.Option(help="Where node agents write pods' logs.")],
    die_with: DieWith = None,
) -> None:
    """Serve the embedded Kubernetes API on loopback (local mode starts it)."""
    import uvloop

    from clusterops.api import crd
    from clusterops.apiserver.access import AccessError
    from clusterops.apiserver.database_file import StorageError
    from clusterops.apiserver.kinds import builtin_kinds
    from clusterops.apiserver.serve import PortTaken, ServerConfig, serve

    config = ServerConfig(
        database=database,
        port=port,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tokens_file=tokens,
        pod_logs_dir=pod_logs,
        kinds=builtin_kinds(),
        crds=crd.embedded_crds(),
    )
    run(
        lambda stop: serve(config, stop, asyncio.Event()),
        die_with,
        refusals=(StorageError, AccessError, PortTaken),
        loop_factory=uvloop.new_event_loop,
    )


def queueing(
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the embedded server.")],
    die_with: DieWith = None,
) -> None:
    """Admit, preempt and bind on one machine, in Kueue's place (local mode starts it)."""
    from clusterops.queueing.run import serve

    run(lambda stop: serve(kubeconfig, stop), die_with, refusals=())


def operator(
    kubeconfig: Kubeconfig = None,
    runtime: Annotated[str, typer.Option(help="containers or processes.")] = "containers",
    host: Annotated[
        str, typer.Option(help="Address of the endpoint that jobs report to.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Its port.")] = 8443,
    url: Annotated[str | None, typer.Option(help="Its URL as jobs see it.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option()] = None,
    tls_key: Annotated[Path | None, typer.Option()] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority that jobs trust.")] = None,
    key: Annotated[Path | None, typer.Option(help="File with the key of the jobs' tokens.")] = None,
    identity_secret: Annotated[
        str | None,
        typer.Option(
            help="Secret with authority, certificate and key, made when missing; instead of files."
        ),
    ] = None,
    lease_namespace: Annotated[
        str, typer.Option(help="Where the leader's lease lies.")
    ] = "default",
    identity: Annotated[
        str | None, typer.Option(help="Name in the leader's lease [default: HOST-PID].")
    ] = None,
    remediation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What may be done to nodes with faults (YAML)."),
    ] = None,
    remedy: Annotated[
        bool | None,
        typer.Option(
            "--remedy/--dry-run", help="Carry resets and reboots out, or only say them [default]."
        ),
    ] = None,
    program: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUNG=JSON",
            help='Argument vector for reset_gpu or reboot_node: reboot_node=["ipmi", "{node}"].',
        ),
    ] = None,
    tickets: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a file for each ticket.")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="A limit, as shareAtOnce=0.1 or perRack=1."),
    ] = None,
    die_with: DieWith = None,
) -> None:
    """Run the operator: it makes TrainingJobs happen, and heals nodes as far as it is allowed to.

    `clusterops health stop` stops all that it does to nodes.
    """
    from clusterops.cli import remediation_options
    from clusterops.cli.operator_identity import IdentityContended
    from clusterops.kube.errors import KubeError
    from clusterops.operator.run import OperatorConfig, serve
    from clusterops.operator.serving import CannotServe

    config = OperatorConfig(
        kubeconfig=kubeconfig,
        runtime=runtime,
        endpoint_host=host,
        endpoint_port=port,
        endpoint_url=url or f"https://{host}:{port}",
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        ca_file=ca,
        key_file=key,
        identity=identity or f"{socket.gethostname()}-{os.getpid()}",
        lease_namespace=lease_namespace,
        remediation=remediation_options.config(
            remediation, remedy, program or (), tickets, budget or (), lease_namespace
        ),
    )
    if identity_secret is None:
        run(lambda stop: serve(config, stop), die_with, refusals=(CannotServe, ValueError))
        return
    if tls_certificate or tls_key or ca or key:
        raise CommandError(
            "--identity-secret brings certificate, key, CA and tokens' key: give one or the others"
        )
    run(
        lambda stop: _operate_from_secret(config, identity_secret, stop),
        die_with,
        refusals=(CannotServe, ValueError, KubeError, IdentityContended),
    )


async def _operate_from_secret(config: "OperatorConfig", secret: str, stop: asyncio.Event) -> None:
    """Serves with the identity in a Secret; ends in time to be started again with a new certificate."""
    from clusterops.cli import operator_identity
    from clusterops.kube import connect
    from clusterops.operator.run import serve

    now = datetime.datetime.now(datetime.UTC)
    host = urllib.parse.urlsplit(config.endpoint_url or "").hostname or config.endpoint_host
    with tempfile.TemporaryDirectory(prefix="clusterops-operator-") as name:
        connection = connect.load(config.kubeconfig)
        try:
            identity = await operator_identity.obtain(
                connection.client(), config.lease_namespace, secret, host, Path(name), now
            )
        finally:
            await connection.close()
        asyncio.get_running_loop().call_later((identity.renew_at - now).total_seconds(), stop.set)
        files = identity.certificates
        config = dataclasses.replace(
            config,
            tls_certificate=files.server,
            tls_key=files.server_key,
            ca_file=files.authority,
            key_file=identity.token_key,
        )
        await serve(config, stop)


def agent(
    node: Annotated[str, typer.Option(help="Name of the Node.")],
    state_dir: Annotated[Path, typer.Option(help="What the agent remembers; one folder a node.")],
    pod_logs: Annotated[Path, typer.Option(help="Where pods' logs go.")],
    volumes: Annotated[Path, typer.Option(help="Where persistent volume claims lie.")],
    kubeconfig: Kubeconfig = None,
    simulated_gpus: Annotated[
        int | None, typer.Option(min=0, help="So many GPUs that do not exist [default: real ones].")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="The API server is a real cluster's: stricter rules.")
    ] = False,
    namespace: Annotated[
        list[str] | None, typer.Option(help="With --cluster: its TrainingJobs may run here.")
    ] = None,
    host_path_root: Annotated[
        list[Path] | None, typer.Option(help="With --cluster: hostPath volumes must lie here.")
    ] = None,
    allow_root: Annotated[bool, typer.Option("--allow-root")] = False,
    end_pods: Annotated[
        bool, typer.Option("--end-pods", help="Stopping the agent ends its pods, too.")
    ] = False,
    boot_id_file: BootIdFile = None,
    die_with: DieWith = None,
) -> None:
    """Run pods of one node as processes on this machine."""
    from clusterops.nodeagent.config import ConfigurationError, NodeAgentConfig
    from clusterops.nodeagent.run import serve
    from clusterops.nodeagent.state_lock import StateInUse

    config = NodeAgentConfig(
        kubeconfig=kubeconfig,
        node_name=node,
        state_dir=state_dir,
        pod_logs_dir=pod_logs,
        volumes_dir=volumes,
        simulated_gpus=simulated_gpus,
        boot_id=boot_id_file.read_text().strip() if boot_id_file is not None else None,
        embedded=not cluster,
        allowed_namespaces=tuple(namespace or ()),
        host_path_roots=tuple(host_path_root or ()),
        allow_root=allow_root,
        end_pods_on_stop=end_pods,
        stop_grace_seconds=STOP_GRACE_SECONDS,
    )
    run(lambda stop: serve(config, stop), die_with, refusals=(ConfigurationError, StateInUse))
