"""Asks the operating system about this machine."""

import importlib.metadata
import os
import platform
import re
import socket
from pathlib import Path

from clusterops.nodeagent import records
from clusterops.nodeagent.node_object import Machine

_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")


def describe(boot_id: str | None = None) -> Machine:
    """This machine, as far as this process may use it: CPUs by affinity, memory by control group.
    `boot_id` is that of a machine which is only simulated.
    """
    return Machine(
        hostname=socket.gethostname(),
        architecture=platform.machine(),
        kernel=platform.release(),
        os_image=_os_image(_read(Path("/etc/os-release"))),
        machine_id=_read(Path("/etc/machine-id")).strip(),
        boot_id=boot_id or records.boot_id(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=_memory_bytes(_read(Path("/proc/meminfo")), _read(_CGROUP_MEMORY)),
        agent_version=_version(),
    )


def _memory_bytes(meminfo: str, cgroup_limit: str) -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    total = int(match[1]) * 1024 if match else 0
    limit = cgroup_limit.strip()
    return min(total, int(limit)) if limit.isdigit() else total


def _os_image(os_release: str) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', os_release, re.MULTILINE)
    return match[1] if match else "Linux"


def _version() -> str:
    try:
        return importlib.metadata.version("clusterops")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
