"""The API server's work on single objects: tables, validation, patches, field ownership.

    python tests/bench/bench_apiserver_objects.py [--objects 10000]

Figures are processor time. Each is compared with the least that any server must do for the same
request: decode the object and encode it again.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import msgspec  # noqa: E402  (after the path)

from clusterops.api.crd import embedded_crds  # noqa: E402  (after the path)
from clusterops.apiserver.kinds import Kind, kind_from_crd  # noqa: E402  (after the path)
from clusterops.apiserver.managed_fields import apply, track_update  # noqa: E402  (after the path)
from clusterops.apiserver.patching import merge_patch  # noqa: E402  (after the path)
from clusterops.apiserver.table import render  # noqa: E402  (after the path)

NOW = "2026-01-01T00:00:00Z"
REPEATS = 3000


def job_kind() -> Kind:
    """TrainingJob, as the embedded server serves it."""
    crds = (crd for crd in embedded_crds() if crd["spec"]["names"]["kind"] == "TrainingJob")
    return kind_from_crd(next(crds))


def stored_job(kind: Kind) -> dict[str, Any]:
    """A running job of about 2.5 KB, with the owners of its spec and of its status."""
    environment = [{"name": f"SETTING_{n}", "value": "x" * 24} for n in range(12)]
    container = {"name": "main", "image": "registry.example/train:1", "env": environment}
    created: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "llm", "namespace": "research", "creationTimestamp": NOW},
        "spec": {"queueName": "research", "template": {"spec": {"containers": [container]}}},
    }
    kind.schema.default(created)
    track_update(kind, None, created, "kubectl-create", now=NOW)
    running = copy.deepcopy(created)
    running["status"] = {
        "phase": "Running",
        "gpus": 16,
        "attempt": 1,
        "progress": {"step": 100, "totalSteps": 1000},
        "conditions": [
            {
                "type": name,
                "status": "True",
                "reason": "Done",
                "message": "",
                "lastTransitionTime": NOW,
            }
            for name in ("Admitted", "PodsReady", "Running")
        ],
    }
    track_update(kind, created, running, "operator", now=NOW, subresource="status")
    return running


def microseconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Processor time of one call, the least of five rounds."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(repeats):
            work()
        best = min(best, time.process_time() - start)
    return best / repeats * 1e6


def main() -> None:
    """Print each figure with its ratio to decoding and encoding the object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    objects = parser.parse_args().objects
    kind = job_kind()
    live = stored_job(kind)
    body = msgspec.json.encode(live)
    step = {"status": {"progress": {"step": 101}}}
    progressed = merge_patch(live, step)
    config = {key: live[key] for key in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": "llm", "namespace": "research"}
    }

    def validate() -> None:
        obj = msgspec.json.decode(body)
        kind.schema.prune(obj)
        kind.schema.default(obj)
        assert not kind.schema.validate(obj)

    def track() -> None:
        new = {**progressed, "metadata": dict(live["metadata"])}
        track_update(kind, live, new, "operator", now=NOW, subresource="status")

    floor = microseconds(lambda: msgspec.json.encode(msgspec.json.decode(body)))
    print(f"object of {len(body)} bytes, decoded and encoded: {floor:.1f} us")
    for name, work in (
        ("decode, prune, default, validate", validate),
        ("merge patch of a status", lambda: merge_patch(live, step)),
        ("owners after a status patch", track),
        (
            "server-side apply, no change",
            lambda: apply(kind, live, config, "me", force=False, now=NOW),
        ),
    ):
        took = microseconds(work)
        print(f"{name:36} {took:8.1f} us   {took / floor:5.1f} x")
    bodies = [body] * objects
    for include in ("None", "Metadata", "Object"):
        took = microseconds(lambda: render(kind, bodies, now=0.0, include=include), 1)  # noqa: B023 - called at once
        each = took / objects
        print(
            f"table of {objects} rows, objects {include:9} {took / 1000:7.1f} ms   {each / floor:5.1f} x a row"
        )


if __name__ == "__main__":
    main()
