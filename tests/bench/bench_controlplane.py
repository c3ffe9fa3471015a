"""The embedded API server beside the real kube-apiserver with etcd: the same load, one after the other.

    python tests/bench/bench_controlplane.py [--objects 10000]

Both speak HTTP/1.1 over TLS, keep TrainingJobs of the same CRD, and have every write on disk before
they answer. Both share the machine with this load generator. The real one does more (admission,
priority and fairness, many versions of many kinds) and wants more cores: the ratios hold for a
machine like this one only. Controllers and audit log are off.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import uvloop  # noqa: E402  (after the path)
from bench_apiserver import (  # noqa: E402  (after the path)
    EVENTS,
    JOBS,
    WATCHERS,
    creates,
    fastest,
    list_in_pages,
    status_patches,
)
from support.apiserver_load import Load  # noqa: E402  (after the path)
from support.controlplane import ControlPlane, Options  # noqa: E402  (after the path)
from support.controlplane_build import built  # noqa: E402  (after the path)
from support.controlplane_process import resident_mb  # noqa: E402  (after the path)
from support.embedded import EmbeddedServer  # noqa: E402  (after the path)

from clusterops.api import crd  # noqa: E402  (after the path)

ALONE = 600
READS = 3000


@dataclass(frozen=True)
class Figure:
    """One row: what was measured, how much of it, and whether more is better."""

    what: str
    amount: float
    unit: str
    more_is_better: bool = True


class Wanted:
    """The bars, as what the embedded server must be of the real one."""

    WRITES, LISTS, FAN_OUT, MEMORY = 3.0, 5.0, 2.0, 8.0


async def measured(load: Load, objects: int, processes: Callable[[], list[int]]) -> list[Figure]:
    """The whole load on one server."""
    one = await load.answers(1, creates(load, range(ALONE)))
    many = await load.answers(16, creates(load, range(ALONE, objects)))
    patch_one = await load.answers(1, status_patches(load, ALONE, "a"))
    patch_many = await load.answers(16, status_patches(load, 2 * ALONE, "b"))
    gets = [load.request("GET", f"{JOBS}/job-{n % 1000:05}") for n in range(READS)]
    got = await load.answers(16, gets)

    async def whole() -> float:
        return (await load.body(load.request("GET", JOBS)))[1].wall

    listed = await fastest(3, whole)
    paged = await fastest(3, lambda: list_in_pages(load))
    revision = json.loads((await load.body(load.request("GET", f"{JOBS}?limit=1")))[0])
    since = revision["metadata"]["resourceVersion"]
    watch = load.request("GET", f"{JOBS}?watch=true&resourceVersion={since}")
    seen = await load.fan_out(watch, WATCHERS, status_patches(load, EVENTS, "f"))
    memory = sum(resident_mb(process) for process in processes())
    return [
        Figure("creates, 1 client", one.rate, "/s"),
        Figure("creates, 16 clients", many.rate, "/s"),
        Figure("status patches, 1 client", patch_one.rate, "/s"),
        Figure("status patches, 16 clients", patch_many.rate, "/s"),
        Figure("gets, 16 clients", got.rate, "/s"),
        Figure(f"list of {objects:,}", listed * 1000, "ms", more_is_better=False),
        Figure("  in pages of 500", paged * 1000, "ms", more_is_better=False),
        Figure(f"{WATCHERS} watchers x {EVENTS:,} events", seen.rate, "/s"),
        Figure("RSS after", memory, "MB", more_is_better=False),
    ]


def embedded(folder: Path, objects: int) -> list[Figure]:
    """On the embedded server."""
    with EmbeddedServer(folder) as server:
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        assert server.process is not None
        process = server.process.pid
        load = Load(process, server.port, server.tls(), server.token)
        return uvloop.run(measured(load, objects, lambda: [process]))


def real(folder: Path, binaries: Path, objects: int) -> list[Figure]:
    """On kube-apiserver with etcd."""
    options = Options(durable=True, audit=False, controllers=False)
    with ControlPlane(folder, binaries, options) as plane:
        plane.send("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        plane.send("POST", path, crd.definition(crd.OURS[0]))
        server = plane.programs["kube-apiserver"]
        plane.until_ready(server, lambda: plane.request("GET", JOBS).status == 200)
        load = Load(server.pid, plane.port, plane.tls(), plane.token)
        processes = [program.pid for program in plane.programs.values()]
        return uvloop.run(measured(load, objects, lambda: processes))


def show(ours: list[Figure], theirs: list[Figure]) -> None:
    """The table."""
    print(f"  {'':<34} {'embedded':>11} {'apiserver+etcd':>15}")
    for mine, other in zip(ours, theirs, strict=True):
        ratio = mine.amount / other.amount if mine.more_is_better else other.amount / mine.amount
        figures = f"{mine.amount:>11,.1f} {other.amount:>15,.1f} {mine.unit:<3}"
        print(f"  {mine.what:<34} {figures} {ratio:6.1f} x")
    bars = f"writes {Wanted.WRITES:g}, lists {Wanted.LISTS:g}, fan-out {Wanted.FAN_OUT:g}"
    print(f"  wanted, as ratios: {bars}, memory {Wanted.MEMORY:g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    objects = parser.parse_args().objects
    binaries = built()
    if binaries is None:
        print("skipped: the real control plane is not built; `make controlplane` builds it")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = embedded(folder / "embedded", objects)
        show(ours, real(folder / "real", binaries, objects))


if __name__ == "__main__":
    main()
