"""A node agent as a process of its own, which can be killed at any of its write points.

    with AgentProcess(folder, kubeconfig, "node-a") as agent: ...

Run as a script it is that process.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from clusterops.nodeagent.config import NodeAgentConfig

STOP_SECONDS = 20.0


class AgentProcess:
    """One node's folders and the agent process that works on them, if one runs.

    `settings` are further fields of NodeAgentConfig.
    """

    def __init__(self, folder: Path, kubeconfig: Path, node: str, **settings: Any) -> None:
        self.folder = folder
        self.node = node
        self.log_file = folder / f"{node}.log"
        self.settings: dict[str, Any] = {
            "kubeconfig": str(kubeconfig),
            "node_name": node,
            "state_dir": str(folder / "nodes" / node),
            "pod_logs_dir": str(folder / "pod-logs"),
            "volumes_dir": str(folder / "volumes"),
            "simulated_gpus": 4,
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, crash_at: str = "", passes: int = 1) -> "AgentProcess":
        """Starts it; it kills itself the `passes`th time that it comes to `crash_at`."""
        root = Path(__file__).parents[2]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, __file__, json.dumps(self.settings)),
                    *(str(os.getpid()), crash_at, str(passes)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PYTHONPATH": str(root), "PATH": os.environ["PATH"], "SECRET_OF_AGENT": "x"},
                start_new_session=True,
            )
        return self

    def wait_for_crash(self, seconds: float = 30.0) -> None:
        assert self.process is not None
        assert self.process.wait(seconds) == -signal.SIGKILL, self.log()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def __enter__(self) -> "AgentProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Crash:
    """Kills its own process, as if the power of this process alone had gone."""

    def __init__(self, at: str, passes: int) -> None:
        self.at = at
        self.left = passes

    def __call__(self, point: str) -> None:
        if point != self.at:
            return
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # it may take a moment, in which nothing more may happen


def _main(settings: str, parent: str, crash_at: str, passes: str) -> None:
    import ctypes
    import logging

    from clusterops.nodeagent.run import serve

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: die with the test
    if os.getppid() != int(parent):
        raise SystemExit("the test that started this agent is gone")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    fields = json.loads(settings)
    for name in ("kubeconfig", "state_dir", "pod_logs_dir", "volumes_dir"):
        fields[name] = Path(fields[name])
    config = NodeAgentConfig(**fields)
    if crash_at:
        config = replace(config, at_write_point=Crash(crash_at, int(passes)))

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        await serve(config, stop)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work())


if __name__ == "__main__":
    _main(*sys.argv[1:])
