"""The node agent as a whole: locks its state, registers its Node, and runs the pods bound to it."""

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from clusterops.api import names
from clusterops.kube import connect
from clusterops.kube.client import Client, RetryPolicy
from clusterops.kube.controller import Controller
from clusterops.kube.errors import KubeError
from clusterops.kube.events import EventRecorder
from clusterops.kube.reflector import Reflector
from clusterops.kube.store import Key, Store
from clusterops.kube.workqueue import WorkQueue
from clusterops.nodeagent import gpus, machine, node_object
from clusterops.nodeagent.config import ConfigurationError, NodeAgentConfig
from clusterops.nodeagent.downward import Surroundings
from clusterops.nodeagent.gpus import Gpu, GpuQueryError
from clusterops.nodeagent.node import NodeRegistration
from clusterops.nodeagent.pods import PodRunner
from clusterops.nodeagent.state_lock import StateInUse, StateLock

__all__ = ["Agent", "ConfigurationError", "NodeAgentConfig", "StateInUse", "serve"]

WORKERS = 8
SWEEP_SECONDS = 3600.0
LAST_WORDS_SECONDS = 5.0
LAST_EVENTS_SECONDS = 1.0
# Statuses wait in the queue while the API server is away, not in a worker, and are delivered soon
# after it comes back.
RETRY = RetryPolicy(attempts=2, unreachable_attempts=1, deadline_seconds=5.0)
MAX_RETRY_SECONDS = 5.0

log = logging.getLogger(__name__)


async def serve(config: NodeAgentConfig, stop: asyncio.Event) -> None:
    """Runs the node agent until `stop` is set; pods go on unless `config.end_pods_on_stop`.

    Raises:
        ConfigurationError: the settings cannot work or are not safe.
        StateInUse: another agent uses the state folder.
        clusterops.kube.errors.ConfigError: the kubeconfig cannot be used.
        OSError: a folder cannot be made.
    """
    config = _absolute(config)
    config.check(os.getuid())
    lock = StateLock(config.state_dir)
    try:
        connection = connect.load(config.kubeconfig)
        try:
            client = Client(connection.transport, retry=RETRY)
            await Agent(config, client, await _inventory(config)).run(stop)
        finally:
            await connection.close()
    finally:
        lock.release()


class Agent:
    """The parts of one agent and how they are wired. Needs a running event loop."""

    def __init__(self, config: NodeAgentConfig, client: Client, inventory: tuple[Gpu, ...]) -> None:
        """`config` has absolute paths; `inventory` are the GPUs to give to pods."""
        here = machine.describe(config.boot_id)
        self._config = config
        self._store: Store[dict[str, Any]] = Store()
        self._queue: WorkQueue[Key] = WorkQueue(max_delay_seconds=MAX_RETRY_SECONDS)
        self._recorder = EventRecorder(client, "clusterops-nodeagent", instance=config.node_name)
        self._node = NodeRegistration(config, client, here, inventory)
        self._reflector: Reflector[dict[str, Any]] = Reflector(
            client,
            names.PODS,
            self._store,
            lambda pod: pod,
            self._queue.add,
            field_selector=f"spec.nodeName={config.node_name}",
        )
        around = Surroundings(
            config.node_name,
            config.node_ip,
            node_object.allocatable(config, here, inventory),
        )
        self._runner = PodRunner(
            config, client, self._store, self._queue, self._recorder, inventory, around
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set or a part of it fails for good."""
        self._runner.adopt()
        work = [self._node.run(), self._reflector.run(), self._recorder.run(), self._run_pods()]
        work.append(self._sweep_logs())
        tasks = [asyncio.create_task(part) for part in work]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            keep = [] if not stop.is_set() else tasks[1:3]  # the last statuses and events need them
            await _cancel([task for task in [*tasks, stopped] if task not in keep])
            try:
                if keep and self._config.end_pods_on_stop:
                    await self._end_pods()
                if keep:
                    await self._recorder.flush(LAST_EVENTS_SECONDS)
            finally:
                await _cancel(keep)
                self._runner.close()
        for task in done - {stopped}:
            task.result()

    async def _run_pods(self) -> None:
        # Before the first list nobody knows which pods were deleted while the agent was away.
        while not self._reflector.synced:
            try:
                await self._reflector.wait_synced(60.0)
            except TimeoutError as error:
                log.warning("%s; running pods go on", error)
        self._runner.enqueue_adopted()
        controller = Controller("pods", self._queue, self._runner.reconcile, workers=WORKERS)
        await controller.run()

    async def _end_pods(self) -> None:
        await self._runner.end_all(self._config.stop_grace_seconds)
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._node.say_stopped()
        except (KubeError, TimeoutError) as error:
            log.warning("the API server was not told that this node stops: %s", error)

    async def _sweep_logs(self) -> None:
        while True:
            self._runner.sweep_logs()
            await asyncio.sleep(SWEEP_SECONDS)


async def _inventory(config: NodeAgentConfig) -> tuple[Gpu, ...]:
    if config.simulated_gpus is not None:
        return gpus.simulated(config.simulated_gpus)
    try:
        return await asyncio.to_thread(gpus.discover, config.gpu_indices)
    except GpuQueryError as error:
        raise ConfigurationError(
            f"{error}; repair it or give a number of simulated GPUs"
        ) from error


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _absolute(config: NodeAgentConfig) -> NodeAgentConfig:
    def absolute(path: Path) -> Path:
        return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - links stay as they are

    return replace(
        config,
        state_dir=absolute(config.state_dir),
        pod_logs_dir=absolute(config.pod_logs_dir),
        volumes_dir=absolute(config.volumes_dir),
        host_path_roots=tuple(map(absolute, config.host_path_roots)),
    )
