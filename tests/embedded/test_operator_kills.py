"""The operator as a process of its own, killed for real just before and after writes that matter."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.embedded import EmbeddedServer
from support.operator_embedded import Cluster, cluster

from clusterops.api import names
from clusterops.operator import failpoints

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

PROGRAM = """
import asyncio, sys
from pathlib import Path
from clusterops.operator.run import OperatorConfig, serve
kubeconfig, port, certificate, key, ca, key_file = sys.argv[1:]
config = OperatorConfig(
    kubeconfig=Path(kubeconfig), runtime="processes", endpoint_port=int(port),
    tls_certificate=Path(certificate), tls_key=Path(key), ca_file=Path(ca),
    key_file=Path(key_file), identity="test",
)
asyncio.run(serve(config, asyncio.Event()))
"""


class OperatorProcess:
    """Starts the operator, armed once; started again unarmed after it was killed."""

    def __init__(self, made: Cluster, armed: str) -> None:
        config = made.config
        self._arguments = [
            str(part)
            for part in (
                config.kubeconfig,
                config.endpoint_port,
                config.tls_certificate,
                config.tls_key,
                config.ca_file,
                config.key_file,
            )
        ]
        self._armed = armed
        self.kills = 0

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        environment.pop(failpoints.ENVIRONMENT, None)
        if self._armed and not self.kills:
            environment[failpoints.ENVIRONMENT] = self._armed
        command = [sys.executable, "-c", PROGRAM, *self._arguments]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)

    async def keep_running(self) -> None:
        while True:
            if self.process.poll() is not None:
                assert self.process.returncode == -9, self.process.returncode
                self.kills += 1
                self.start()
            await asyncio.sleep(0.05)


@asynccontextmanager
async def kept_running(made: Cluster, armed: str) -> AsyncIterator[OperatorProcess]:
    operator = OperatorProcess(made, armed)
    operator.start()
    keeping = asyncio.create_task(operator.keep_running())
    try:
        yield operator
        assert not keeping.done(), keeping
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        operator.process.kill()
        operator.process.wait(10)


async def _play_node(made: Cluster, job: str, seen: list[tuple[str, str]]) -> None:
    """Runs what is bound; TERM ends at once; an attempt that is not told to leave succeeds."""
    while True:
        for pod in await made.pods(job):
            labels, phase = pod["metadata"]["labels"], pod.get("status", {}).get("phase")
            entry = (labels[names.LABEL_ATTEMPT], labels[names.LABEL_RANK])
            if entry not in seen:
                seen.append(entry)
            if pod["spec"].get("nodeName") and phase in (None, "Pending"):
                with contextlib.suppress(Exception):
                    await made.set_phase(pod, "Running")
        await made.finish_deletions(job)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(
    "point",
    [
        "create-workload",
        "write-job-status",
        "create-pod",
        "evict-workload",
        "end-pod",
        "release-quota",
    ],
)
async def test_a_killed_operator_goes_on_where_it_was(
    embedded_server: EmbeddedServer, tmp_path: Path, side: str, point: str
) -> None:
    async with cluster(embedded_server, tmp_path) as made:
        async with kept_running(made, f"{side}:{point}:1") as operator:
            await made.submit("job", checkpoint={"gracePeriodSeconds": 5})
            seen: list[tuple[str, str]] = []
            node = asyncio.create_task(_play_node(made, "job", seen))
            try:
                await made.until_phase("job", "Running")
                await made.edit("job", suspend=True)
                await made.until_phase("job", "Suspended")
                await made.edit("job", suspend=False)
                await made.until_phase("job", "Running")
                await made.exit_all([p for p in await made.pods("job") if _runs(p)], 0)
                status = await made.until_phase("job", "Succeeded")
            finally:
                node.cancel()
                await asyncio.gather(node, return_exceptions=True)
            assert operator.kills == 1
            assert [a["cause"] for a in status["attempts"]] == ["Suspended", "Completed"]
            assert status["counts"]["userErrors"] == 0
            assert sorted(seen) == [("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")]


def _runs(pod: dict[str, object]) -> bool:
    return pod["status"]["phase"] == "Running"  # type: ignore[index]
