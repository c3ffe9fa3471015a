"""Which processes local mode consists of, and the command line of each. Pure."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterops.local.state_folder import StateFolder

APISERVER = "apiserver"
QUEUEING = "queueing"
OPERATOR = "operator"


@dataclass(frozen=True)
class NodeShape:
    """How many nodes to run on this machine, and their GPUs. `gpus_per_node=None` = what NVML finds."""

    nodes: int
    gpus_per_node: int | None
    driver: bool = False
    """Whether this machine has the driver of real GPUs."""
    kernel_log: bool = True
    """Whether this user may read the kernel's log; else its records come from the journal."""

    @property
    def watched(self) -> bool:
        """Whether the nodes' GPUs have a health daemon: when there are any."""
        return self.driver if self.gpus_per_node is None else self.gpus_per_node > 0

    def node_names(self) -> tuple[str, ...]:
        """The nodes' names, in order."""
        return tuple(f"local-{number}" for number in range(self.nodes))


@dataclass(frozen=True)
class Part:
    """One process: its name in logs and status, and its argument vector."""

    name: str
    argv: tuple[str, ...]


def agent_part(node: str) -> str:
    """The part's name of the agent of one node."""
    return f"agent-{node}"


def health_part(node: str) -> str:
    """The part's name of the health daemon of one node."""
    return f"health-{node}"


def part_names(shape: NodeShape) -> tuple[str, ...]:
    """Every part, in the order of starting; they stop in the opposite order."""
    nodes = shape.node_names()
    health = [health_part(node) for node in nodes] if shape.watched else []
    return (APISERVER, QUEUEING, OPERATOR, *map(agent_part, nodes), *health)


Command = tuple[Sequence[str], Mapping[str, object]]
"""Words, and options of which those without a value are left out."""


def parts(
    folder: StateFolder, ports: Mapping[str, int], shape: NodeShape, parent: int
) -> tuple[Part, ...]:
    """The command lines. `parent` is the process whose death ends them all, even by SIGKILL: a
    part without its supervisor would hold ports and locks that nobody manages.
    """

    def part(name: str, command: Command) -> Part:
        words, options = command
        own = (
            {"kubeconfig": folder.part_kubeconfig(name), **options}
            if name != APISERVER
            else options
        )
        flags = [f"--{option}={value}" for option, value in own.items() if value is not None]
        argv = (sys.executable, "-m", "clusterops.cli", *words, *flags, f"--die-with={parent}")
        return Part(name, argv)

    nodes = shape.node_names()
    return (
        part(APISERVER, _apiserver(folder, ports["apiserver"])),
        part(QUEUEING, (["queueing"], {})),
        part(OPERATOR, _operator(folder, ports["endpoint"])),
        *(part(agent_part(node), _agent(folder, shape, node)) for node in nodes),
        *(
            part(health_part(node), _health(folder, shape, node))
            for node in (nodes if shape.watched else ())
        ),
    )


def _apiserver(folder: StateFolder, port: int) -> Command:
    return ["apiserver"], {
        "database": folder.database,
        "port": port,
        "tls-certificate": folder.pki / "server.crt",
        "tls-key": folder.pki / "server.key",
        "tokens": folder.tokens,
        "pod-logs": folder.pod_logs,
    }


def _operator(folder: StateFolder, port: int) -> Command:
    return ["operator"], {
        "runtime": "processes",
        # There is one, and after a restart it goes on leading without waiting for its own lease.
        "identity": "local",
        "port": port,
        "tls-certificate": folder.pki / "server.crt",
        "tls-key": folder.pki / "server.key",
        "ca": folder.pki / "ca.crt",
        "key": folder.operator_key,
        "remediation": folder.remediation,
    }


def _agent(folder: StateFolder, shape: NodeShape, node: str) -> Command:
    simulated = shape.gpus_per_node is not None
    # In order, the nodes were drained before; when local mode is given up half-way, whatever still
    # runs must end, too.
    return ["agent", "--end-pods"], {
        "node": node,
        "state-dir": folder.node(node),
        "pod-logs": folder.pod_logs,
        "volumes": folder.volumes,
        "simulated-gpus": shape.gpus_per_node,
        "boot-id-file": folder.machine(node) / "boot-id" if simulated else None,
    }


def _health(folder: StateFolder, shape: NodeShape, node: str) -> Command:
    simulated = shape.gpus_per_node is not None
    real = "/dev/kmsg" if shape.kernel_log else None
    words = ["health", "daemon"]
    words += ["--no-nvml"] if simulated else []
    words += ["--journal"] if not simulated and real is None else []
    return words, {
        "node": node,
        "ledger": folder.node(node) / "health" / "ledger.db",
        "kmsg": folder.machine(node) / "kmsg" if simulated else real,
        "gpus": shape.gpus_per_node,
        "boot-id-file": folder.machine(node) / "boot-id" if simulated else None,
        # Its metrics are on a free port, which its log names.
        "port": 0,
    }


def log_file(folder: StateFolder, part: str) -> Path:
    """Where a part's output goes."""
    return folder.logs / f"{part}.log"
