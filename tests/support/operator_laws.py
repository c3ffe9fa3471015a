"""What must hold at every write whatever fails, and how raw Workloads are read to check it."""

from typing import Any

from support.operator_server import FakeServer

from clusterops.api import names

Json = dict[str, Any]


class Laws:
    """What must hold at every instant, whatever fails."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self.releases: dict[str, int] = {}
        self.evictions: dict[str, int] = {}
        self.overbooked_by_others = False
        server.on_change.append(self._check)

    def alive(self, job: str) -> list[Json]:
        return [
            pod
            for pod in self._server.peek("pods")
            if pod["metadata"]["labels"][names.LABEL_JOB] == job
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def _check(self, plural: str, before: Json | None, after: Json | None) -> None:
        if plural == "pods" and after is not None:
            self._pod_written(before, after)
        if plural == "workloads" and before is not None:
            self._workload_written(before, after)

    def _pod_written(self, before: Json | None, after: Json) -> None:
        job = after["metadata"]["labels"][names.LABEL_JOB]
        attempts = {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in self.alive(job)}
        assert len(attempts) <= 1, f"{job} has pods of attempts {attempts} alive"
        if before is None:
            owner = after["metadata"]["ownerReferences"][0]["uid"]
            held = [
                w for w in self._server.all("workloads") if owner_of(w) == owner and holds_quota(w)
            ]
            assert held, f"a pod of {job} was created without quota"

    def _workload_written(self, before: Json, after: Json | None) -> None:
        job = before["metadata"]["labels"][names.LABEL_JOB]
        was_evicted = is_true(before, "Evicted")
        if (
            after is not None
            and is_true(after, "Evicted")
            and not was_evicted
            and holds_quota(after)
        ):
            self.evictions[job] = self.evictions.get(job, 0) + 1
        frees = holds_quota(before) and (after is None or not holds_quota(after))
        if not frees:
            return
        if after is not None and after["spec"].get("active") is False:
            self.overbooked_by_others = True
            return
        assert not self.alive(job), f"quota of {job} was freed while its pods were alive"
        if after is None or is_true(after, "Finished"):
            return
        assert was_evicted, f"{job} was released without having been evicted"
        self.releases[job] = self.releases.get(job, 0) + 1
        conditions = {c["type"]: c for c in after["status"]["conditions"]}
        assert conditions["Admitted"]["status"] == "False"
        assert conditions["PodsReady"]["status"] == "False"


def owner_of(raw: Json) -> str:
    return raw["metadata"]["ownerReferences"][0]["uid"]


def is_true(raw: Json, kind: str) -> bool:
    conditions = raw.get("status", {}).get("conditions", [])
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def has_admission(raw: Json) -> bool:
    return "admission" in raw.get("status", {}) and is_true(raw, "QuotaReserved")


def holds_quota(raw: Json) -> bool:
    active = raw["spec"].get("active") is not False
    return has_admission(raw) and active and not is_true(raw, "Finished")


def is_pending(raw: Json) -> bool:
    if "deletionTimestamp" in raw["metadata"] or is_true(raw, "Finished"):
        return False
    if raw["spec"].get("active") is False or "admission" in raw.get("status", {}):
        return False
    conditions = {c["type"]: c for c in raw.get("status", {}).get("conditions", [])}
    if conditions.get("QuotaReserved", {}).get("reason") == "OnHold":
        return False
    return conditions.get("Requeued", {}).get("status") != "False"


def gpus_of(raw: Json) -> int:
    pod_set = raw["spec"]["podSets"][0]
    limits = pod_set["template"]["spec"]["containers"][0]["resources"]["limits"]
    return pod_set["count"] * int(limits[names.RESOURCE_GPU])
