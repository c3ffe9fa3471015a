"""Starts the ranks of a job as processes on loopback, as the operator does on one machine."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_ranks(
    arguments: Sequence[str], ranks: int, environment: Mapping[str, str] | None = None
) -> list["subprocess.Popen[str]"]:
    """One process a rank, each with stdout and stderr as pipes of text."""
    port = free_port()
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CLUSTEROPS_", "PET_"))
    }
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={
                **base,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                **(environment or {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def ended(
    processes: "Sequence[subprocess.Popen[str]]", seconds: float = 110.0
) -> list[tuple[int, str, str]]:
    """Waits for all; returns exit code, stdout and stderr of each. Kills what is left over."""
    try:
        outputs = [one.communicate(timeout=seconds) for one in processes]
    finally:
        for one in processes:
            if one.poll() is None:
                one.kill()
                one.wait()
    return [(one.returncode, out, err) for one, (out, err) in zip(processes, outputs, strict=True)]
