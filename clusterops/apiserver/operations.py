"""What tells how the server is: version, health, metrics."""

import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from clusterops.apiserver.answers import send_body
from clusterops.apiserver.refusals import no_such_path
from clusterops.apiserver.request import Request
from clusterops.apiserver.state import State
from clusterops.apiserver.stored import encode

# The Kubernetes whose behaviour this server follows.
KUBERNETES_VERSION = "1.32.4"

TEXT = ((b"content-type", b"text/plain; charset=utf-8"),)
_CHECKS = ("ping", "storage")


class Operations:
    """Answers outside the API proper. `watches` tells how many watches are open."""

    def __init__(self, state: State, watches: Callable[[], int]) -> None:
        self._state = state
        self.requests: Counter[tuple[str, str, int]] = Counter()  # verb, resource, status
        self.refused = 0
        self._metrics = CollectorRegistry(auto_describe=False)
        self._metrics.register(_StateCollector(state, self.requests, watches))

    async def answer_open(self, request: Request) -> bool:
        """Answer the paths that need no token; False for all others."""
        parts = request.path.strip("/").split("/")
        if parts == ["version"]:
            await send_body(request.send, 200, _version())
            return True
        if parts[0] in ("livez", "readyz", "healthz"):
            await self._health(request, parts)
            return True
        return False

    async def _health(self, request: Request, parts: list[str]) -> None:
        """`ok`, or which check failed. A server that cannot write still lives: it serves reads."""
        failed = {}
        if parts[0] != "livez" and self._state.broken is not None:
            failed["storage"] = str(self._state.broken)
        if len(parts) > 1:
            if len(parts) > 2 or parts[1] not in _CHECKS:
                raise no_such_path()
            failed = {name: why for name, why in failed.items() if name == parts[1]}
        lines = [
            f"[-]{name} failed: {failed[name]}" if name in failed else f"[+]{name} ok"
            for name in _CHECKS
        ]
        if failed:
            text = "\n".join([*lines, f"{parts[0]} check failed", ""])
        elif "verbose" in request.query:
            text = "\n".join([*lines, f"{parts[0]} check passed", ""])
        else:
            text = "ok"
        await send_body(request.send, 500 if failed else 200, text.encode(), TEXT)

    async def metrics(self, request: Request) -> None:
        """`/metrics` in the Prometheus text format."""
        await send_body(request.send, 200, generate_latest(self._metrics), TEXT)


def _version() -> bytes:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    return encode(
        {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{KUBERNETES_VERSION}+clusterops",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"python{sys.version_info.major}.{sys.version_info.minor}",
            "compiler": sys.implementation.name,
            "platform": f"{sys.platform}/{platform.machine()}",
        }
    )


class _StateCollector(Collector):
    """Reads the state when metrics are asked for, so that requests pay for a counter only."""

    def __init__(
        self,
        state: State,
        requests: Counter[tuple[str, str, int]],
        watches: Callable[[], int],
    ) -> None:
        self._state = state
        self._requests = requests
        self._watches = watches

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All metrics."""
        requests = CounterMetricFamily(
            "apiserver_requests", "Requests answered.", labels=("verb", "resource", "code")
        )
        for (verb, resource, status), count in sorted(self._requests.items()):
            requests.add_metric((verb, resource, str(status)), count)
        yield requests
        objects = GaugeMetricFamily("apiserver_objects", "Objects stored.", labels=("resource",))
        for resource, collection in sorted(self._state.collections.items()):
            objects.add_metric((resource,), len(collection.objects))
        yield objects
        batches, changes = self._state.commits
        yield CounterMetricFamily("apiserver_commits", "Transactions committed.", value=batches)
        yield CounterMetricFamily("apiserver_changes", "Writes committed.", value=changes)
        yield GaugeMetricFamily("apiserver_watches", "Watches open.", value=self._watches())
        yield GaugeMetricFamily(
            "apiserver_revision", "The newest resourceVersion.", value=self._state.revision
        )
        yield GaugeMetricFamily(
            "apiserver_storage_writable", "1 while writes are accepted.",
            value=0 if self._state.broken else 1,
        )  # fmt: skip
