"""The same training runs with nothing in their way: plain processes, no operator, no queue.

What they end with is the measure: a preempted job must end with exactly the same weights.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterops.api import names
from clusterops.local.demo.stage import DemoFailed


@dataclass(frozen=True)
class Result:
    """What a training run wrote when it finished."""

    final_loss: float | None
    sha256: str


def read_result(folder: Path) -> Result:
    """Reads `result.json` of a finished run in its checkpoint folder.

    Raises:
        DemoFailed: there is none.
    """
    try:
        written = json.loads((folder / "result.json").read_text())
    except (OSError, ValueError) as error:
        raise DemoFailed(f"{folder} holds no result of a finished run: {error}") from error
    # A job without weights has a state that depends on every step.
    digest = written.get("weightsSha256") or written.get("stateSha256")
    return Result(written.get("finalLoss"), str(digest))


async def run(job: Mapping[str, Any], folder: Path, deadline_seconds: float) -> Result:
    """Runs a TrainingJob's command by hand, one process a rank, with `folder` for its checkpoints.

    Raises:
        DemoFailed: a rank failed or the deadline passed; the end of its output is in the text.
    """
    scratch = folder.with_name(f"{folder.name}.tmp")
    for one in (folder, scratch):
        one.mkdir(mode=0o700, parents=True)
    spec = job["spec"]
    container = spec["template"]["spec"]["containers"][0]
    argv = [*container.get("command", []), *container.get("args", [])]
    if argv[0] == "python":
        argv[0] = sys.executable
    ranks = int(spec.get("replicas", 1))
    declared = {entry["name"]: str(entry.get("value", "")) for entry in container.get("env") or []}
    shared = {
        **os.environ,
        **declared,
        "TMPDIR": str(scratch),  # torch leaves a folder there
        names.ENV_CHECKPOINT_DIR: str(folder),
        names.ENV_WORLD_SIZE: str(ranks),
        names.ENV_LOCAL_RANK: "0",
        names.ENV_MASTER_ADDR: "127.0.0.1",
        names.ENV_MASTER_PORT: str(_free_port()),
    }
    processes = [
        await asyncio.create_subprocess_exec(
            *argv,
            env={**shared, names.ENV_RANK: str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for rank in range(ranks)
    ]
    try:
        async with asyncio.timeout(deadline_seconds):
            outputs = await asyncio.gather(*(process.communicate() for process in processes))
    except TimeoutError:
        raise DemoFailed(
            f"the undisturbed run did not end within {deadline_seconds:.0f} s"
        ) from None
    finally:
        for process in processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    for process, (output, _) in zip(processes, outputs, strict=True):
        if process.returncode:
            tail = "\n".join(output.decode(errors="replace").splitlines()[-8:])
            raise DemoFailed(f"the undisturbed run failed with code {process.returncode}:\n{tail}")
    return read_result(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
