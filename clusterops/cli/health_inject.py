"""Faults into simulated machines: `health inject`, and the repairs that their operator orders.

Only into what stands in the place of a kernel's log: a node of local mode with simulated GPUs, or a file
that a daemon replays. A real log, a device, a node with real GPUs are refused.
"""

import fcntl
import os
import stat
import time
from pathlib import Path
from typing import Annotated

import typer

from clusterops.cli.errors import NOT_FOUND, USAGE, CommandError
from clusterops.cli.local import StateDir, folder_of
from clusterops.local import machines
from clusterops.local.machines import SimulatedMachine
from clusterops.local.state_folder import StateFolder

REPLACED = "replaced"
_REAL = ("/dev", "/proc", "/sys")
_TAIL_BYTES = 65_536

Node = Annotated[
    str | None, typer.Option(help="Node of local mode [default: the only one that runs].")
]
Source = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Or a file that a daemon replays.")
]


def inject(
    fault: Annotated[
        str,
        typer.Argument(
            help="bus, uncontained, drain, program, the number of an Xid, or replaced: the vendor "
            "has been there."
        ),
    ],
    node: Node = None,
    gpu: Annotated[int, typer.Option(min=0, max=63, help="Which GPU of the node.")] = 0,
    stays: Annotated[
        bool, typer.Option("--stays", help="Neither reset nor reboot helps: the board is broken.")
    ] = False,
    source: Source = None,
    state_dir: StateDir = None,
) -> None:
    """Break a simulated GPU: its driver says so in the node's kernel log, and all else follows.

    For rehearsals and demonstrations. Real logs and real GPUs are refused.
    """
    from clusterops.cli import output
    from health import injection

    if fault == REPLACED:
        if source is not None:
            raise CommandError("a file has no GPU to replace", "name a node of local mode", USAGE)
        _replace(folder_of(state_dir), node)
        return
    try:
        chosen = injection.fault(fault)
    except injection.NoSuchFault as error:
        raise CommandError(str(error), "see: clusterops health inject --help", USAGE) from error
    if source is not None:
        append(source, injection.lines(chosen, gpu, source.name))
        output.say(f"{source}: {chosen.about}")
        return
    folder = folder_of(state_dir)
    name, machine = _machine(folder, node)
    quantities = {**chosen.gpu, **({"stays": 1} if stays and chosen.gpu else {})}
    # The GPU first: whoever reads the line and asks finds it as the line says.
    machine.set_gpu(gpu, quantities)
    append(machine.kmsg, injection.lines(chosen, gpu, name))
    output.say(f"GPU {gpu} of {name}: {chosen.about}")
    if chosen.ends_programs:
        ended = machines.end_programs(folder, name, gpu)
        output.say(f"programs that it took along: {ended}")
    output.say("see what follows with: clusterops health nodes")


def simulated_repair(
    node: Annotated[str, typer.Argument(help="Node of local mode.")],
    state_dir: StateDir = None,
    reboot: Annotated[bool, typer.Option("--reboot", help="Reboot it; else a reset.")] = False,
    gpus: Annotated[str, typer.Option(help="UUIDs of the GPUs to reset.")] = "",
) -> None:
    """Reset or reboot a simulated machine (the operator of local mode runs it)."""
    del gpus  # on one board they are reset together
    folder = folder_of(state_dir)
    _, machine = _machine(folder, node)
    for index, quantities in machine.broken_gpus().items():
        if not quantities.get("stays"):
            machine.set_gpu(int(index), {})
    if reboot:
        machines.reboot(folder, node)


def _replace(folder: StateFolder, node: str | None) -> None:
    from clusterops.cli import output

    name, machine = _machine(folder, node)
    for index in machine.broken_gpus():
        machine.set_gpu(int(index), {})
    machines.reboot(folder, name)
    output.say(f"{name} came back from the vendor with all its GPUs well; it has to prove that")
    output.say("see it with: clusterops health nodes")


def _machine(folder: StateFolder, node: str | None) -> tuple[str, SimulatedMachine]:
    known = sorted(path.parent.name for path in (folder.root / "nodes").glob("*/machine"))
    if node is None:
        if len(known) != 1:
            raise CommandError(
                f"which node? {', '.join(known) or 'none is simulated here'}",
                "name it: --node",
                USAGE,
            )
        node = known[0]
    if node not in known:
        real = (folder.root / "nodes" / node).is_dir() and node not in (".", "..")
        what = f"{node} has real GPUs" if real else f"there is no node {node} in {folder.root}"
        way_out = "faults go into simulated GPUs only: clusterops up --nodes 2 --gpus 4"
        raise CommandError(what, way_out, USAGE if real else NOT_FOUND)
    return node, machines.machine(folder, node)


def append(source: Path, lines: tuple[str, ...]) -> None:
    """Adds lines to a file of records, numbered on from its last one.

    Raises:
        CommandError: it is no such file.
    """
    from health import injection, kmsg_record

    where = source.resolve()
    if any(where.is_relative_to(real) for real in _REAL):
        raise CommandError(
            f"{source} is a real kernel's",
            "faults go into simulated nodes and replay files only",
            USAGE,
        )
    try:
        descriptor = os.open(where, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise CommandError(f"cannot write {source}: {error.strerror}", "", NOT_FOUND) from error
    try:
        kind = os.fstat(descriptor)
        if not stat.S_ISREG(kind.st_mode):
            raise CommandError(f"{source} is no file", "name a file that a daemon replays", USAGE)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).splitlines()
        last = kmsg_record.head(tail[-1]) if tail else None
        if tail and last is None:
            way_out = "its last line is none of the form priority,number,microseconds,-;text"
            raise CommandError(f"{source} is no kernel log of records", way_out, USAGE)
        number = last.sequence + 1 if last is not None else 0
        now = time.monotonic_ns() // 1000
        records = [injection.record(number + k, now + k, text) for k, text in enumerate(lines)]
        os.write(descriptor, b"".join(records))
    finally:
        os.close(descriptor)
