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


def parts(
    folder: StateFolder, ports: Mapping[str, int], shape: NodeShape, parent: int
) -> tuple[Part, ...]:
    """The command lines. `parent` is the process whose death ends them all, even by SIGKILL: a
    part without its supervisor would hold ports and locks that nobody manages.
    """

    def part(name: str, command: Sequence[str], options: Mapping[str, object]) -> Part:
        flags = [f"--{option}={value}" for option, value in options.items() if value is not None]
        argv = (sys.executable, "-m", "clusterops.cli", *command, *flags, f"--die-with={parent}")
        return Part(name, argv)

    pki = folder.pki
    apiserver = part(
        APISERVER,
        ["apiserver"],
        {
            "database": folder.database,
            "port": ports["apiserver"],
            "tls-certificate": pki / "server.crt",
            "tls-key": pki / "server.key",
            "tokens": folder.tokens,
            "pod-logs": folder.pod_logs,
        },
    )
    queueing = part(QUEUEING, ["queueing"], {"kubeconfig": folder.part_kubeconfig(QUEUEING)})
    operator = part(
        OPERATOR,
        ["operator"],
        {
            "kubeconfig": folder.part_kubeconfig(OPERATOR),
            "runtime": "processes",
            # There is one, and after a restart it goes on leading without waiting for its own lease.
            "identity": "local",
            "port": ports["endpoint"],
            "tls-certificate": pki / "server.crt",
            "tls-key": pki / "server.key",
            "ca": pki / "ca.crt",
            "key": folder.operator_key,
            "remediation": folder.remediation,
        },
    )
    simulated = shape.gpus_per_node is not None
    agents = tuple(
        part(
            agent_part(node),
            # In order, the nodes were drained before; when local mode is given up half-way, whatever
            # still runs must end, too.
            ["agent", "--end-pods"],
            {
                "kubeconfig": folder.part_kubeconfig(agent_part(node)),
                "node": node,
                "state-dir": folder.node(node),
                "pod-logs": folder.pod_logs,
                "volumes": folder.volumes,
                "simulated-gpus": shape.gpus_per_node,
                "boot-id-file": folder.machine(node) / "boot-id" if simulated else None,
            },
        )
        for node in shape.node_names()
    )
    health = tuple(
        part(
            health_part(node),
            ["health", "daemon", *(["--no-nvml"] if simulated else [])],
            {
                "kubeconfig": folder.part_kubeconfig(health_part(node)),
                "node": node,
                "ledger": folder.node(node) / "health" / "ledger.db",
                "kmsg": folder.machine(node) / "kmsg" if simulated else "/dev/kmsg",
                "gpus": shape.gpus_per_node,
                "boot-id-file": folder.machine(node) / "boot-id" if simulated else None,
                # Its metrics are on a free port, which its log names.
                "port": 0,
            },
        )
        for node in (shape.node_names() if shape.watched else ())
    )
    return (apiserver, queueing, operator, *agents, *health)


def log_file(folder: StateFolder, part: str) -> Path:
    """Where a part's output goes."""
    return folder.logs / f"{part}.log"
