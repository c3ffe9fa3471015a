"""Runs the two halves of the watch on one node: `health daemon` and `health reader`."""

from pathlib import Path
from typing import Annotated

import typer

from clusterops.cli.serve import BootIdFile, DieWith, Kubeconfig, run


def daemon(
    node: Annotated[str, typer.Option(help="Name of this Node.", envvar="NODE_NAME")],
    ledger: Annotated[Path, typer.Option(help="File that the daemon remembers in.")],
    kmsg: Annotated[
        Path | None, typer.Option(help="Read the kernel's log here: device, FIFO or file.")
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="Or take it from `health reader` at this socket.")
    ] = None,
    journal: Annotated[bool, typer.Option("--journal", help="Or follow the journal.")] = False,
    nvml: Annotated[bool, typer.Option(help="Ask NVML too.")] = True,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs of this node [default: as many as ever seen].")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Policy laid over the shipped one (YAML).")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of /metrics and /healthz on loopback.")] = 9464,
    publish: Annotated[bool, typer.Option(help="Write NodeHealth in the cluster.")] = True,
    boot_id: Annotated[str | None, typer.Option(hidden=True)] = None,
    boot_id_file: BootIdFile = None,
    kubeconfig: Kubeconfig = None,
    die_with: DieWith = None,
) -> None:
    """Watch this node's GPUs: kernel log and NVML in, verdict and NodeHealth out."""
    from clusterops.kube.errors import ConfigError
    from health.daemon import ConfigurationError, DaemonConfig, serve
    from health.kmsg import SourceUnusable
    from health.ledger import LedgerError
    from health.policy.yaml_text import PolicyError
    from health.record_link import LinkError

    if boot_id_file is not None:
        boot_id = boot_id_file.read_text().strip()
    config = DaemonConfig(
        node=node,
        ledger=ledger,
        kmsg=kmsg,
        socket=socket,
        journal=journal,
        nvml=nvml,
        expected_gpus=gpus,
        kubeconfig=kubeconfig,
        publish=publish,
        policy=policy,
        port=port,
        boot_id=boot_id,
    )
    refusals = (
        ConfigError,
        ConfigurationError,
        LedgerError,
        LinkError,
        OSError,
        PolicyError,
        SourceUnusable,
    )
    run(lambda stop: serve(config, stop), die_with, refusals=refusals)


def reader(
    socket: Annotated[Path, typer.Option(help="Where the daemon listens.")],
    source: Annotated[Path, typer.Option(help="The kernel's log: device, FIFO or file.")] = Path(
        "/dev/kmsg"
    ),
    boot_id: Annotated[str | None, typer.Option(hidden=True)] = None,
    die_with: DieWith = None,
) -> None:
    """Hand the kernel's log to the daemon: the half that needs privileges, and nothing else."""
    from health.kmsg import SourceUnusable
    from health.reader import ReaderConfig, serve
    from health.record_link import LinkError

    config = ReaderConfig(socket, source, boot_id)
    run(lambda stop: serve(config, stop), die_with, refusals=(LinkError, SourceUnusable))
