"""Simulated machines: what a node of simulated GPUs has in the place of a kernel and of a driver.

kmsg       the kernel's log, in the record format of /dev/kmsg; faults are injected into it
boot-id    the boot that the machine is in
gpus.json  how its GPUs are, where they are not well; the checks after a repair read it

A simulated reboot gives it the next boot, an empty log, and ends its agent and its health daemon, which
the supervisor starts again, as an init system would.
"""

import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterops.local import observe, parts
from clusterops.local.state_folder import StateFolder, write_atomically
from clusterops.local.waiting import wait_until

REAL_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DRIVER = Path("/proc/driver/nvidia/version")
KERNEL_LOG = Path("/dev/kmsg")
DOWN_SECONDS = 30.0
_SHARED = 23
"""So many characters of a simulated boot's id are those of the real boot; the rest is a number."""


@dataclass(frozen=True)
class SimulatedMachine:
    """The files of one node."""

    folder: Path

    @property
    def kmsg(self) -> Path:
        return self.folder / "kmsg"

    @property
    def boot_id(self) -> Path:
        return self.folder / "boot-id"

    @property
    def gpus(self) -> Path:
        return self.folder / "gpus.json"

    def power_on(self) -> None:
        """Makes the files. A machine does not outlive the boot of the real one: its clock is that one's."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shared = REAL_BOOT_ID.read_text().strip()[:_SHARED]
        try:
            known = self.boot_id.read_text().startswith(shared)
        except FileNotFoundError:
            known = False
        if not known or not self.kmsg.exists():
            self._boot(shared, 0)

    def next_boot(self) -> None:
        """The boot after the one that it is in, with an empty log. Its GPUs stay as they are."""
        known = self.boot_id.read_text().strip()
        self._boot(known[:_SHARED], int(known[_SHARED + 1 :], 16) + 1)

    def _boot(self, shared: str, number: int) -> None:
        # The log first: who dies between the two comes up in the old boot, with nothing in its log.
        write_atomically(self.kmsg, "")
        write_atomically(self.boot_id, f"{shared}-{number:012x}\n")

    def broken_gpus(self) -> dict[str, dict[str, int]]:
        """What is wrong with which GPU, by index and quantity; empty when all are well."""
        try:
            return dict(json.loads(self.gpus.read_text()))
        except FileNotFoundError:
            return {}

    def set_gpu(self, index: int, quantities: dict[str, int]) -> None:
        """Says how one GPU is: quantities that are not as they should be; none = it is well."""
        known = self.broken_gpus()
        known.pop(str(index), None)
        if quantities:
            known[str(index)] = quantities
        write_atomically(self.gpus, json.dumps(known, indent=2) + "\n")


def readable(kernel_log: Path = KERNEL_LOG) -> bool:
    """Whether this user may read the kernel's log: opening the device says so, its mode does not."""
    try:
        os.close(os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def machine(folder: StateFolder, node: str) -> SimulatedMachine:
    """The machine of a node."""
    return SimulatedMachine(folder.machine(node))


def reboot(folder: StateFolder, node: str) -> None:
    """Takes a simulated machine into its next boot and waits until its processes of the old one are gone.

    Raises:
        LookupError: the node has no simulated machine.
        TimeoutError: a process of it does not end.
    """
    found = machine(folder, node)
    if not found.boot_id.exists():
        raise LookupError(f"node {node} is no simulated machine")
    names = (parts.agent_part(node), parts.health_part(node))
    old = [line.pid for line in observe.read_parts(folder) if line.name in names and line.pid]
    found.next_boot()
    for pid in old:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: not any(map(_lives, old)), DOWN_SECONDS):
        raise TimeoutError(f"the processes of node {node} do not end")


def end_programs(folder: StateFolder, node: str, gpu: int) -> int:
    """Ends the programs that use a GPU of a simulated machine, as losing it ends real ones: at once.
    Returns how many there were.
    """
    place = os.fsencode(folder.node(node) / "tmp") + b"/"
    ended = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            pairs = (one.partition(b"=") for one in (entry / "environ").read_bytes().split(b"\0"))
            told = {name: value for name, _, value in pairs}
            devices = told.get(b"CUDA_VISIBLE_DEVICES", b"").split(b",")
            if told.get(b"TMPDIR", b"").startswith(place) and str(gpu).encode() in devices:
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
    return ended


def remediation(folder: StateFolder, simulated: bool) -> dict[str, Any]:
    """What the operator of local mode may do: to simulated machines all, to real ones nothing but
    write tickets. The operator's configuration, as it reads it.
    """
    settings: dict[str, Any] = {"tickets": {"folder": str(folder.tickets)}}
    if simulated:
        reboot = [sys.executable, "-m", "clusterops.cli", "health", "simulated-repair", "{node}"]
        reboot += ["--state-dir", str(folder.root)]
        settings["enabled"] = True
        settings["programs"] = {
            "reset_gpu": [*reboot, "--gpus", "{gpus}"],
            "reboot_node": [*reboot, "--reboot"],
        }
        settings["verification"] = {"simulatedGpus": str(folder.machine("{node}") / "gpus.json")}
    return settings


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
