"""The one place that changes the cluster: applies decided actions, in order, one write each.

Every write is safe to repeat and safe to leave out. Status of the job is written only over the
version that the decision saw; the Workload's status is read, checked and replaced under its
resourceVersion; pods are deleted by uid. A failure ends the batch: what is missing is decided anew.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec

from clusterops.api import names
from clusterops.core import actions, pods, transitions
from clusterops.core import workload as workloads
from clusterops.core.observed import Observed, TrainingJob
from clusterops.core.transitions import Told
from clusterops.kube.client import Client
from clusterops.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from clusterops.operator.batch import Batch, Identity, NameTaken, owned, version
from clusterops.operator.failpoints import WRITE_POINTS, Failpoint, unarmed

T = TypeVar("T")
Json = dict[str, Any]
Tell = Callable[[TrainingJob, Told], None]

# Creations and deletions of pods that are on their way at once.
CONCURRENT_POD_WRITES = 16


class Applier:
    """Applies batches through one client. `tell` gets the events of each status write."""

    def __init__(
        self,
        client: Client,
        identity: Identity,
        tell: Tell,
        *,
        failpoint: Failpoint = unarmed,
        concurrency: int = CONCURRENT_POD_WRITES,
    ) -> None:
        self._client = client
        self._identity = identity
        self._tell = tell
        self._failpoint = failpoint
        self._concurrency = concurrency
        self._table: dict[type[actions.Action], Callable[[Batch, Any], Awaitable[None]]] = {
            actions.AddJobFinalizer: self._add_job_finalizer,
            actions.RemoveJobFinalizer: self._remove_job_finalizer,
            actions.WriteStatus: self._write_status,
            actions.DeleteJob: self._delete_job,
            actions.CreateWorkload: self._create_workload,
            actions.UpdateWorkload: self._update_workload,
            actions.EvictWorkload: self._evict_workload,
            actions.CancelEviction: self._cancel_eviction,
            actions.SetPodsReady: self._set_pods_ready,
            actions.ReleaseQuota: self._release_quota,
            actions.HoldWorkload: self._hold_workload,
            actions.WakeWorkload: self._wake_workload,
            actions.FinishWorkload: self._finish_workload,
            actions.RemoveWorkloadFinalizer: self._remove_workload_finalizer,
            actions.DeleteWorkload: self._delete_workload,
            actions.CreateSecret: self._create_secret,
            actions.CreateService: self._create_service,
            actions.CreatePod: self._create_pod,
            actions.EndPod: self._end_pod,
            actions.DeletePod: self._delete_pod,
        }

    async def apply(
        self, job: TrainingJob, observed: Observed, decided: list[actions.Action], now: datetime
    ) -> float | None:
        """Applies the actions; returns after how many seconds to decide again, None: on change.

        Raises KubeError for the first write that failed; later ones are then not begun.
        """
        batch = Batch(job, observed, now)
        wakes = [action.after_seconds for action in decided if isinstance(action, actions.Wake)]
        writes = [action for action in decided if not isinstance(action, actions.Wake)]
        position = 0
        while position < len(writes):
            alike = _run_of_pod_writes(writes, position)
            if len(alike) > 1:
                await self._apply_together(batch, alike)
                position += len(alike)
            else:
                await self._apply_one(batch, writes[position])
                position += 1
        return min(wakes, default=None)

    async def _apply_one(self, batch: Batch, action: actions.Action) -> None:
        await self._table[type(action)](batch, action)

    async def _apply_together(self, batch: Batch, alike: list[actions.Action]) -> None:
        for start in range(0, len(alike), self._concurrency):
            chunk = alike[start : start + self._concurrency]
            if len(chunk) == 1:
                await self._apply_one(batch, chunk[0])
                continue
            results = await asyncio.gather(
                *(self._apply_one(batch, action) for action in chunk), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _write(self, point: str, write: Callable[[], Awaitable[T]]) -> T:
        assert point in WRITE_POINTS, point
        self._failpoint(f"before:{point}")
        result = await write()
        self._failpoint(f"after:{point}")
        return result

    # The job

    async def _add_job_finalizer(self, batch: Batch, action: actions.AddJobFinalizer) -> None:
        del action
        kept = batch.job.metadata.finalizers or ()
        await self._patch_job_finalizers(batch, "add-job-finalizer", [*kept, names.FINALIZER_JOB])

    async def _remove_job_finalizer(self, batch: Batch, action: actions.RemoveJobFinalizer) -> None:
        del action
        kept = [f for f in batch.job.metadata.finalizers or () if f != names.FINALIZER_JOB]
        try:
            await self._patch_job_finalizers(batch, "remove-job-finalizer", kept)
        except NotFound:
            return  # somebody else removed it, and the object went

    async def _patch_job_finalizers(self, batch: Batch, point: str, finalizers: list[str]) -> None:
        metadata = {"resourceVersion": batch.job_version, "finalizers": finalizers or None}
        written = await self._write(
            point,
            lambda: self._client.patch(
                names.TRAINING_JOBS, batch.namespace, batch.name, {"metadata": metadata}
            ),
        )
        batch.job_version = version(written) or batch.job_version

    async def _write_status(self, batch: Batch, action: actions.WriteStatus) -> None:
        patch = {
            "metadata": {"resourceVersion": batch.job_version},
            "status": msgspec.to_builtins(action.status),
        }
        written = await self._write(
            "write-job-status",
            lambda: self._client.patch(
                names.TRAINING_JOBS, batch.namespace, batch.name, patch, subresource="status"
            ),
        )
        batch.job_version = version(written)
        for told in transitions.told(batch.job.status, action.status):
            self._tell(batch.job, told)

    async def _delete_job(self, batch: Batch, action: actions.DeleteJob) -> None:
        del action
        await self._forgiving(
            "delete-job",
            lambda: self._client.delete(
                names.TRAINING_JOBS,
                batch.namespace,
                batch.name,
                uid=batch.job.metadata.uid,
                propagation="Background",
            ),
        )

    # The Workload

    async def _create_workload(self, batch: Batch, action: actions.CreateWorkload) -> None:
        await self._createowned(batch, "create-workload", names.WORKLOADS, action.body)

    async def _update_workload(self, batch: Batch, action: actions.UpdateWorkload) -> None:
        # Under the version that was seen: queue and pod sets may be immutable by now.
        patch = dict(action.patch)
        metadata = dict(patch.get("metadata") or {})
        patch["metadata"] = {**metadata, "resourceVersion": batch.workload_version}
        written = await self._write(
            "update-workload",
            lambda: self._client.patch(
                names.WORKLOADS, batch.namespace, batch.workload_name, patch
            ),
        )
        batch.workload_version = version(written)

    async def _evict_workload(self, batch: Batch, action: actions.EvictWorkload) -> None:
        await self._workload_status(
            batch,
            "evict-workload",
            lambda raw: workloads.evicted_status(raw, action.reason, action.message, batch.now),
        )

    async def _cancel_eviction(self, batch: Batch, action: actions.CancelEviction) -> None:
        await self._workload_status(
            batch,
            "cancel-eviction",
            lambda raw: workloads.cancelled_eviction_status(
                raw, action.reason, action.message, batch.now
            ),
        )

    async def _set_pods_ready(self, batch: Batch, action: actions.SetPodsReady) -> None:
        del action
        await self._workload_status(
            batch, "set-pods-ready", lambda raw: workloads.pods_ready_status(raw, batch.now)
        )

    async def _release_quota(self, batch: Batch, action: actions.ReleaseQuota) -> None:
        await self._workload_status(
            batch,
            "release-quota",
            lambda raw: workloads.released_status(
                raw, action.hold, action.message, action.ran_seconds, batch.now
            ),
        )

    async def _hold_workload(self, batch: Batch, action: actions.HoldWorkload) -> None:
        await self._workload_status(
            batch,
            "hold-workload",
            lambda raw: workloads.held_status(raw, action.message, batch.now),
        )

    async def _wake_workload(self, batch: Batch, action: actions.WakeWorkload) -> None:
        del action
        await self._workload_status(
            batch, "wake-workload", lambda raw: workloads.woken_status(raw, batch.now)
        )

    async def _finish_workload(self, batch: Batch, action: actions.FinishWorkload) -> None:
        await self._workload_status(
            batch,
            "finish-workload",
            lambda raw: workloads.finished_status(raw, action.reason, action.message, batch.now),
        )

    async def _remove_workload_finalizer(
        self, batch: Batch, action: actions.RemoveWorkloadFinalizer
    ) -> None:
        del action
        raw = await self._own_workload(batch)
        if raw is None:
            return
        finalizers = raw["metadata"].get("finalizers") or []
        if names.FINALIZER_PODS_GONE not in finalizers:
            return
        kept = [f for f in finalizers if f != names.FINALIZER_PODS_GONE]
        metadata = {"resourceVersion": version(raw), "finalizers": kept or None}
        await self._forgiving(
            "remove-workload-finalizer",
            lambda: self._client.patch(
                names.WORKLOADS, batch.namespace, batch.workload_name, {"metadata": metadata}
            ),
        )

    async def _delete_workload(self, batch: Batch, action: actions.DeleteWorkload) -> None:
        del action
        raw = await self._own_workload(batch)
        if raw is None:
            return
        await self._forgiving(
            "delete-workload",
            lambda: self._client.delete(
                names.WORKLOADS,
                batch.namespace,
                batch.workload_name,
                uid=raw["metadata"]["uid"],
                propagation="Background",
            ),
        )

    async def _workload_status(
        self, batch: Batch, point: str, change: Callable[[Json], Json | None]
    ) -> None:
        """Read, check, replace. `change` returns None when there is nothing to write."""
        raw = await self._own_workload(batch)
        if raw is None:
            return
        status = change(raw)
        if status is None:
            return
        written = await self._write(
            point, lambda: self._client.replace_status(names.WORKLOADS, {**raw, "status": status})
        )
        batch.workload_version = version(written)

    async def _own_workload(self, batch: Batch) -> Json | None:
        raw = await self._client.find(names.WORKLOADS, batch.namespace, batch.workload_name)
        if raw is None or not owned(raw, batch.job.metadata.uid):
            return None
        return raw

    # Secret, Service, pods

    async def _create_secret(self, batch: Batch, action: actions.CreateSecret) -> None:
        token = self._identity.token(batch.job.metadata.uid, action.attempt)
        content = {pods.TOKEN_KEY: token.encode(), pods.CA_KEY: self._identity.ca_pem}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {
                "namespace": batch.namespace,
                "name": pods.secret_name(batch.job, action.attempt),
                "labels": pods.selector_labels(batch.job),
                "ownerReferences": [workloads.owner_reference(batch.job)],
            },
            "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
        }
        try:
            await self._write("create-secret", lambda: self._client.create(names.SECRETS, body))
        except AlreadyExists:
            return  # from before a crash, with the same content; secrets cannot be read to compare

    async def _create_service(self, batch: Batch, action: actions.CreateService) -> None:
        await self._createowned(batch, "create-service", names.SERVICES, action.body)

    async def _create_pod(self, batch: Batch, action: actions.CreatePod) -> None:
        await self._createowned(batch, "create-pod", names.PODS, action.body)

    async def _end_pod(self, batch: Batch, action: actions.EndPod) -> None:
        within = {names.ANNOTATION_ENDS_WITHIN: str(action.grace_seconds)}
        patch = {
            "metadata": {"uid": action.uid, "annotations": within},
            "spec": {"activeDeadlineSeconds": 1},  # passed, for every pod that has begun
        }
        try:
            await self._forgiving(
                "end-pod",
                lambda: self._client.patch(names.PODS, batch.namespace, action.name, patch),
            )
        except (Forbidden, Invalid):
            # A cluster that lets nobody change a pod: TERM matters more than the logs.
            await self._delete_pod(batch, action)

    async def _delete_pod(self, batch: Batch, action: actions.DeletePod | actions.EndPod) -> None:
        await self._forgiving(
            "delete-pod",
            lambda: self._client.delete(
                names.PODS,
                batch.namespace,
                action.name,
                uid=action.uid,
                grace_period_seconds=action.grace_seconds,
            ),
        )

    async def _createowned(
        self, batch: Batch, point: str, resource: names.ResourceType, body: Any
    ) -> None:
        """Creates an object of the job; one that is there already must be the job's own."""
        try:
            await self._write(point, lambda: self._client.create(resource, cast("Json", body)))
        except AlreadyExists:
            name = body["metadata"]["name"]
            found = await self._client.find(resource, batch.namespace, name)
            if found is not None and not owned(found, batch.job.metadata.uid):
                raise NameTaken(
                    f"{resource.kind} {batch.namespace}/{name} exists and does not belong to "
                    f"TrainingJob {batch.name}; delete it, or submit the job under another name"
                ) from None

    async def _forgiving(self, point: str, write: Callable[[], Awaitable[Json]]) -> None:
        """A write about something that may be gone, or be another of the same name, already."""
        try:
            await self._write(point, write)
        except (NotFound, Conflict):
            return


def _run_of_pod_writes(writes: list[actions.Action], position: int) -> list[actions.Action]:
    """The longest row of equal pod writes from `position` on: their order does not matter."""
    kind = type(writes[position])
    if kind not in (actions.CreatePod, actions.EndPod, actions.DeletePod):
        return [writes[position]]
    end = position
    while end < len(writes) and type(writes[end]) is kind:
        end += 1
    return writes[position:end]
