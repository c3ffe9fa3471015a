"""A cluster for the command line: the embedded API server, queues, and an operator played by hand."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from support.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
JOBS = "/apis/clusterops.io/v1alpha1/namespaces/research/trainingjobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/namespaces/research/localqueues",
    "WorkloadPriorityClass": f"{KUEUE}/workloadpriorityclasses",
}


def install_queues(server: EmbeddedServer) -> None:
    """What manifests/queues holds."""
    for name in ("namespace", "flavor", "cluster-queue", "local-queue", "priority-classes"):
        text = (ROOT / "manifests" / "queues" / f"{name}.yaml").read_text(encoding="utf-8")
        for body in yaml.safe_load_all(text):
            answer = server.request("POST", PLACES[body["kind"]], body)
            assert answer.status in (201, 409), answer.content


def example(name: str) -> dict[str, Any]:
    """A job of manifests/examples."""
    path = ROOT / "manifests" / "examples" / f"{name}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def create_job(server: EmbeddedServer, job: dict[str, Any]) -> dict[str, Any]:
    """The job as the server stores it."""
    answer = server.request("POST", JOBS, job)
    assert answer.status == 201, answer.content
    return answer.json


def get_job(server: EmbeddedServer, name: str) -> dict[str, Any] | None:
    """The job, None when there is none."""
    answer = server.request("GET", f"{JOBS}/{name}")
    return answer.json if answer.status == 200 else None


def set_status(server: EmbeddedServer, name: str, **status: Any) -> None:
    """Writes fields of a job's status, as the operator would."""
    answer = server.request(
        "PATCH",
        f"{JOBS}/{name}/status",
        {"status": status},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status == 200, answer.content


def add_pod(
    server: EmbeddedServer, job: str, attempt: int, rank: int, phase: str = "Running"
) -> dict[str, Any]:
    """A pod of a job, bound to a node and in a phase."""
    labels = {
        "clusterops.io/job": job,
        "clusterops.io/attempt": str(attempt),
        "clusterops.io/rank": str(rank),
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{job}-{attempt}-{rank}", "namespace": "research", "labels": labels},
        "spec": {
            "containers": [{"name": "trainer", "image": "x"}],
            "nodeName": "node-0",
            "restartPolicy": "Never",
        },
    }
    answer = server.request("POST", "/api/v1/namespaces/research/pods", body)
    assert answer.status == 201, answer.content
    set_pod_phase(server, answer.json, phase)
    return answer.json


def set_pod_phase(server: EmbeddedServer, pod: dict[str, Any], phase: str) -> None:
    """Writes a pod's phase and its container's state, as its node agent would."""
    state: dict[str, Any] = {"running": {"startedAt": now()}}
    if phase in ("Succeeded", "Failed"):
        code = 0 if phase == "Succeeded" else 1
        ended = {"startedAt": now(), "finishedAt": now(), "containerID": "process://1"}
        state = {"terminated": {"exitCode": code, "reason": phase, **ended}}
    container = {
        "name": "trainer",
        "state": state,
        "ready": phase == "Running",
        "restartCount": 0,
        "image": "x",
        "imageID": "x",
        "containerID": "process://1",
    }
    answer = server.request(
        "PATCH",
        f"/api/v1/namespaces/research/pods/{pod['metadata']['name']}/status",
        {"status": {"phase": phase, "containerStatuses": [container]}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status == 200, answer.content


def write_log(server: EmbeddedServer, pod: dict[str, Any], *lines: str) -> None:
    """Appends lines to a pod's log, as its shim would. A line is `TIME text`."""
    metadata = pod["metadata"]
    identity = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
    folder = server.pod_logs / identity / "trainer"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "0.log").open("a", encoding="utf-8") as log:
        for line in lines:
            stamp, _, text = line.partition(" ")
            log.write(f"{stamp} stdout F {text}\n")


def add_event(
    server: EmbeddedServer, job: dict[str, Any], moment: str, reason: str, message: str
) -> None:
    """An Event about a job."""
    metadata = job["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": "research"},
        "involvedObject": {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": metadata["name"],
            "namespace": "research",
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Normal",
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    answer = server.request("POST", "/api/v1/namespaces/research/events", body)
    assert answer.status == 201, answer.content


def now() -> str:
    """This moment as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def copy_of(value: Any) -> Any:
    """A deep copy of JSON."""
    return json.loads(json.dumps(value))
