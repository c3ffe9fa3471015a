"""Records core/v1 Events about objects, without ever making anybody wait."""

from clusterops.kube.client import Client
from clusterops.kube.transport import JsonObject


class EventRecorder:
    """Takes events at once and sends them in the background while `run` is running."""

    def __init__(self, client: Client, component: str, *, instance: str = "") -> None:
        raise NotImplementedError

    def record(self, obj: JsonObject, event_type: str, reason: str, message: str) -> None:
        """Queues an event (`Normal` or `Warning`) about `obj` (needs apiVersion, kind, metadata)."""
        raise NotImplementedError

    async def run(self) -> None:
        """Sends until cancelled."""
        raise NotImplementedError

    async def flush(self, timeout_seconds: float) -> bool:
        """Waits until everything recorded so far is sent; False when the time was not enough."""
        raise NotImplementedError
