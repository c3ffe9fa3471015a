"""Runs the pods bound to this node: observes, lets `pod_lifecycle` decide, does it, reports it."""

import asyncio
import logging
import time
from typing import Any

from clusterops.kube.client import Client
from clusterops.kube.errors import KubeError
from clusterops.kube.events import EventRecorder
from clusterops.kube.store import Key, Store
from clusterops.kube.workqueue import WorkQueue
from clusterops.nodeagent import admission, gpus, launching, pod_lifecycle, records
from clusterops.nodeagent.admission import Failure, Rules
from clusterops.nodeagent.config import NodeAgentConfig
from clusterops.nodeagent.downward import ConfigError, Surroundings
from clusterops.nodeagent.gpus import Gpu
from clusterops.nodeagent.observation import Observed, RunState, Waiting
from clusterops.nodeagent.old_logs import OldLogs
from clusterops.nodeagent.pod_folder import PodFolder, PodRecord, load_all
from clusterops.nodeagent.pod_lifecycle import (
    Action,
    Admit,
    Delete,
    EndLeftovers,
    Fail,
    Forget,
    Release,
    Start,
    Stop,
)
from clusterops.nodeagent.pod_reports import PodReports
from clusterops.nodeagent.pod_spec import StartError
from clusterops.nodeagent.shims import CannotStart, LeftoversRemain, Shims
from clusterops.nodeagent.volumes import Unsupported

PodObject = dict[str, Any]

MAX_STEPS = 32  # of one pod in one go; more would mean that deciding never ends
LEFTOVERS_RETRY_SECONDS = 5.0
STATUS_UNKNOWN = "ContainerStatusUnknown"
NODE_SHUTDOWN = Failure(
    pod_lifecycle.NODE_SHUTDOWN, "Pod was terminated because its node was shut down"
)

log = logging.getLogger(__name__)


class PodRunner:
    """The pods of one node. `reconcile` is what a `kube` controller calls with their keys."""

    def __init__(
        self,
        config: NodeAgentConfig,
        client: Client,
        pods: Store[PodObject],
        queue: WorkQueue[Key],
        recorder: EventRecorder,
        inventory: tuple[Gpu, ...],
        around: Surroundings,
    ) -> None:
        """`pods` holds the pods bound to this node; `inventory` its GPUs."""
        self._config = config
        self._pods = pods
        self._queue = queue
        self._recorder = recorder
        self._inventory = inventory
        self._around = around
        self._at = config.at_write_point
        self._rules = Rules(None if config.embedded else config.allowed_namespaces, len(inventory))
        self._launcher = launching.Launcher(config, client, around)
        self._shims = Shims(self._shim_ended, self._at)
        self._old_logs = OldLogs(config.state_dir)
        self._reports = PodReports(client, pods, config.node_ip, self._at)
        self._folders: dict[str, PodFolder] = {}
        self._waiting: dict[str, dict[str, Waiting]] = {}
        self._boot_id = records.boot_id()
        self._ended = asyncio.Event()

    def adopt(self) -> None:
        """Takes over what an earlier run of the agent left: records, living shims, half-told stops."""
        for folder in load_all(self._config.state_dir):
            self._folders[folder.record.uid] = folder
            for container, run in self._observe(folder.record.uid).alive():
                path = folder.run_path(container, run.attempt)
                self._shims.watch(path, folder.record.key)
                if run.kill_in_seconds is not None:
                    self._shims.tell(path)

    def enqueue_adopted(self) -> None:
        """Has every adopted pod decided anew. Only when the store holds what the server has."""
        for folder in self._folders.values():
            self._queue.add(folder.record.key)

    async def reconcile(self, key: Key) -> float | None:
        """Brings the pod of this name, and earlier ones of the same name, one step or more further."""
        pod = self._reports.current(key)
        uid = None if pod is None else pod["metadata"]["uid"]
        recheck: float | None = None
        for folder in [f for f in self._folders.values() if f.record.key == key]:
            if folder.record.uid != uid:
                recheck = _earliest(recheck, await self._settle_orphan(folder))
        if pod is not None:
            recheck = _earliest(recheck, await self._settle(pod))
        return recheck

    async def end_all(self, grace_seconds: float) -> None:
        """Ends every pod because the node shuts down, and reports it if the API server answers."""
        for uid, folder in self._folders.items():
            observed = self._observe(uid)
            if observed.alive() and folder.record.failure is None:
                folder.save(failure=NODE_SHUTDOWN)
            for container, run in observed.alive():
                await self._stop(folder, Stop(container, run.attempt, grace_seconds))
        give_up_at = time.monotonic() + grace_seconds + pod_lifecycle.KILL_MARGIN_SECONDS
        while any(self._observe(uid).alive() for uid in self._folders):
            self._ended.clear()
            try:
                async with asyncio.timeout(max(0.0, min(give_up_at - time.monotonic(), 1.0))):
                    await self._ended.wait()
            except TimeoutError:
                if time.monotonic() >= give_up_at:
                    break
        for key in sorted({folder.record.key for folder in self._folders.values()}):
            try:
                await self.reconcile(key)
            except KubeError as error:
                log.warning("pod %s/%s: its end could not be reported: %s", *key, error)

    def close(self) -> None:
        """Stops watching; what runs goes on."""
        self._shims.close()

    def sweep_logs(self) -> None:
        """Removes logs of pods that are gone for longer than the retention."""
        self._old_logs.sweep(self._config.log_retention_seconds, time.time_ns())

    # Deciding

    async def _settle(self, pod: PodObject) -> float | None:
        uid = pod["metadata"]["uid"]
        decision = pod_lifecycle.Decision()
        for _ in range(MAX_STEPS):
            decision = pod_lifecycle.decide(pod, self._observe(uid), self._rules)
            if not await self._apply_all(pod, uid, decision.actions):
                break
        await self._reports.write(pod, lambda: self._observe(uid))
        if Delete() in decision.actions:
            await self._reports.delete(pod)
        recheck = decision.recheck_seconds
        if self._waiting.get(uid):
            recheck = _earliest(recheck, pod_lifecycle.RETRY_START_SECONDS)
        return recheck

    async def _settle_orphan(self, folder: PodFolder) -> float | None:
        uid = folder.record.uid
        for _ in range(MAX_STEPS):
            decision = pod_lifecycle.decide_orphan(self._observe(uid))
            progressed = await self._apply_all(None, uid, decision.actions)
            if uid not in self._folders:
                return None
            if not progressed:
                return _earliest(decision.recheck_seconds, LEFTOVERS_RETRY_SECONDS)
        return LEFTOVERS_RETRY_SECONDS

    def _observe(self, uid: str) -> Observed:
        waiting = self._waiting.get(uid, {})
        folder = self._folders.get(uid)
        if folder is None:
            return Observed(waiting=waiting)
        return folder.observe(self._boot_id, time.monotonic(), waiting)

    # Doing

    async def _apply_all(
        self, pod: PodObject | None, uid: str, actions: tuple[Action, ...]
    ) -> bool:
        """Does what is to be done here; True when something changed, so that deciding again pays."""
        progressed = False
        for action in actions:
            progressed |= await self._apply(pod, uid, action)
        return progressed

    async def _apply(self, pod: PodObject | None, uid: str, action: Action) -> bool:
        match action:
            case Delete():
                return False  # after the status
            case Admit():
                assert pod is not None
                return self._admit(pod)
            case Fail(failure):
                self._fail(pod, uid, failure)
                return True
        folder = self._folders[uid]
        match action:
            case Start():
                assert pod is not None
                return await self._start(pod, folder, action)
            case Stop():
                return await self._stop(folder, action, pod)
            case EndLeftovers():
                return await self._end_leftovers(pod, folder, action)
            case Release():
                folder.save(ended=True)
                self._at("pod-ended")
                self._waiting.pop(uid, None)
                self._wake_those_waiting_for_gpus()
                return True
            case Forget():
                await self._forget(folder)
                return True
        raise AssertionError(action)

    def _admit(self, pod: PodObject) -> bool:
        uid = pod["metadata"]["uid"]
        holders = [f for f in self._folders.values() if not f.record.ended and f.record.gpus]
        wanted = admission.wanted_gpus(pod)
        devices = gpus.assign(wanted, self._inventory, [f.record.gpus for f in holders])
        if devices is None:
            free = len(self._inventory) - sum(len(f.record.gpus) for f in holders)
            message = f"the pod wants {wanted} GPUs, {free} are free"
            if not any(self._is_leaving(folder) for folder in holders):
                self._fail(pod, uid, Failure(admission.OUT_OF_GPUS, message))
                return True
            every = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
            reason = Waiting("WaitingForGpus", message + "; others are ending")
            self._waiting[uid] = {container["name"]: reason for container in every}
            return False
        self._record(pod, gpus=devices)
        self._at("pod-recorded")
        self._waiting.pop(uid, None)
        return True

    def _is_leaving(self, folder: PodFolder) -> bool:
        """True when the pod gives its GPUs back soon without anybody's doing."""
        pod = self._pods.get(folder.record.key)
        if pod is None or pod["metadata"]["uid"] != folder.record.uid:
            return True
        return pod_lifecycle.is_ending(pod, self._observe(folder.record.uid))

    def _record(self, pod: PodObject, **fields: Any) -> None:
        metadata = pod["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        record = PodRecord(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            boot_id=self._boot_id,
            admitted_at=records.timestamp(time.time_ns()),
            admitted_monotonic=time.monotonic(),
            logs=str(self._config.pod_logs_dir / name),
        )
        folder = PodFolder(self._config.state_dir, record)
        folder.save(**fields)
        self._folders[record.uid] = folder

    def _fail(self, pod: PodObject | None, uid: str, failure: Failure) -> None:
        if uid in self._folders:
            self._folders[uid].save(failure=failure)
        else:
            assert pod is not None
            self._record(pod, failure=failure)
        self._event(pod, "Warning", failure.reason, failure.message)

    async def _start(self, pod: PodObject, folder: PodFolder, start: Start) -> bool:
        uid, container = folder.record.uid, start.container
        run = folder.run_path(container, start.attempt)
        try:
            await self._launcher.prepare(pod, folder, container, start.attempt)
            await self._shims.start(run, folder.record.key)
        except ConfigError as error:
            return self._wait(pod, uid, container, "CreateContainerConfigError", str(error))
        except (CannotStart, OSError) as error:
            return self._wait(pod, uid, container, "CreateContainerError", str(error))
        except Unsupported as error:
            self._fail(pod, uid, Failure(admission.UNSUPPORTED, str(error)))
        except StartError as error:
            launching.refuse_to_start(run, error)
            self._event(pod, "Warning", "Failed", f"container {container}: {error}")
        else:
            self._event(pod, "Normal", "Started", f"Started container {container}")
        self._waiting.get(uid, {}).pop(container, None)
        folder.prune_runs(container)
        return True

    def _wait(self, pod: PodObject, uid: str, container: str, reason: str, message: str) -> bool:
        problem = Waiting(reason, message)
        waiting = self._waiting.setdefault(uid, {})
        if waiting.get(container) != problem:
            waiting[container] = problem
            self._event(pod, "Warning", "Failed", f"Error: {message}")
        return False

    async def _stop(self, folder: PodFolder, stop: Stop, pod: PodObject | None = None) -> bool:
        path = folder.run_path(stop.container, stop.attempt)
        run = self._observe(folder.record.uid).last(stop.container)
        if run is not None and run.state is RunState.PREPARED:
            return await self._shims.abandon(path)
        first = run is not None and run.kill_in_seconds is None
        self._shims.ask_to_stop(path, stop.grace_seconds)
        if first:
            self._event(pod, "Normal", "Killing", f"Stopping container {stop.container}")
        return True

    async def _end_leftovers(
        self, pod: PodObject | None, folder: PodFolder, action: EndLeftovers
    ) -> bool:
        path = folder.run_path(action.container, action.attempt)
        launch = records.read(str(path / records.LAUNCH)) or {}
        running = records.read(str(path / records.RUNNING)) or {}
        marker = f"TMPDIR={(launch.get('env') or {}).get('TMPDIR', path)}"
        try:
            await self._shims.end_leftovers(path, marker)
        except LeftoversRemain as error:
            self._event(pod, "Warning", "FailedKillPod", str(error))
            return False
        now = records.timestamp(time.time_ns())
        record = launching.exit_record(
            137,
            9,
            STATUS_UNKNOWN,
            action.message,
            started_at=running.get("startedAt", now),
            finished_at=now,
        )
        if not (path / records.EXIT).exists():  # the shim may have come to it after all
            records.write_exit(str(path), record)
        self._at("exit-written")
        self._event(
            pod, "Warning", STATUS_UNKNOWN, f"container {action.container}: {action.message}"
        )
        return True

    async def _forget(self, folder: PodFolder) -> None:
        uid = folder.record.uid
        self._old_logs.add(uid, folder.record.logs, time.time_ns())
        await asyncio.to_thread(folder.remove)
        del self._folders[uid]
        self._waiting.pop(uid, None)
        self._reports.forget(uid)
        self._at("pod-forgotten")
        self._wake_those_waiting_for_gpus()

    def _wake_those_waiting_for_gpus(self) -> None:
        for key, pod in self._pods.items():
            uid = pod["metadata"]["uid"]
            if uid in self._waiting and uid not in self._folders:
                self._queue.add(key)

    def _shim_ended(self, key: Key) -> None:
        self._ended.set()
        self._queue.add(key)

    def _event(self, pod: PodObject | None, kind: str, reason: str, message: str) -> None:
        if pod is not None:
            about = {**pod, "apiVersion": "v1", "kind": "Pod"}  # objects of a list lack both
            self._recorder.record(about, kind, reason, message)


def _earliest(first: float | None, second: float | None) -> float | None:
    moments = [moment for moment in (first, second) if moment is not None]
    return min(moments, default=None)
