"""Leader election on a Lease: at most one acts, and none after it has lost the lease."""

from collections.abc import Awaitable, Callable

from clusterops.kube.client import Client


class LostLeadership(Exception):  # noqa: N818 - says what happened
    """The lease is not ours, or not certainly ours any more: nothing may be written."""


class LeaderElection:
    """Competes for one Lease and runs the work while holding it."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float = 15.0,
        renew_deadline_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        on_started: Callable[[], None] | None = None,
        on_stopped: Callable[[], None] | None = None,
    ) -> None:
        """`identity` must differ between any two live processes."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Whether writing is allowed at this instant."""
        raise NotImplementedError

    @property
    def holder(self) -> str:
        """The identity last seen in the lease; "" when nobody has it."""
        raise NotImplementedError

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the lease, runs `work` under it, competes again after a loss; until cancelled.

        Returns when `work` returns; releases the lease then, and when cancelled.
        """
        raise NotImplementedError
