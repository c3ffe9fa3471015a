"""Who may read /metrics: whoever the API server knows and allows, as in Kubernetes' own components.

The scraper's bearer token is reviewed (TokenReview), and so is its right to `get` the path /metrics
(SubjectAccessReview). The names of jobs, and how many there are, are not for every pod that reaches
the port, nor for every user of the machine. Answers are remembered for a while, by the token's
digest: a refusal shortly, so that a right that was just given is soon seen.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

from clusterops.api.names import ResourceType
from clusterops.kube.client import Client
from clusterops.kube.errors import ApiError, KubeError

TOKEN_REVIEWS = ResourceType("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False)
ACCESS_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False
)
PATH = "/metrics"

ALLOWED, UNKNOWN, DENIED, UNDECIDED = 200, 401, 403, 503

ALLOWED_SECONDS = 60.0
REFUSED_SECONDS = 5.0
REMEMBERED = 1_000
# Reviews on their way at once: guessed tokens must not become a flood at the API server.
CONCURRENT_REVIEWS = 4


class Scrapers:
    """Decides about tokens. `monotonic` gives seconds."""

    def __init__(self, client: Client, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._known: dict[bytes, tuple[float, int]] = {}
        self._reviewing = asyncio.Semaphore(CONCURRENT_REVIEWS)

    async def status(self, token: str) -> int:
        """The HTTP status that a scrape with this token gets; UNDECIDED when nobody can say."""
        if not token:
            return UNKNOWN
        digest = hashlib.sha256(token.encode()).digest()
        until, known = self._known.get(digest, (0.0, UNDECIDED))
        if self._monotonic() < until:
            return known
        try:
            async with self._reviewing:
                status = await self._review(token)
        except KubeError:
            return UNDECIDED
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        lasts = ALLOWED_SECONDS if status == ALLOWED else REFUSED_SECONDS
        self._known[digest] = (self._monotonic() + lasts, status)
        return status

    async def _review(self, token: str) -> int:
        told = await self._status_of(TOKEN_REVIEWS, {"token": token})
        if told.get("authenticated") is not True:
            return UNKNOWN
        user = told.get("user") or {}
        who = {
            "user": user.get("username") or "",
            "groups": user.get("groups") or [],
            **{key: user[key] for key in ("uid", "extra") if user.get(key)},
        }
        asked = {"nonResourceAttributes": {"path": PATH, "verb": "get"}, **who}
        allowed = (await self._status_of(ACCESS_REVIEWS, asked)).get("allowed") is True
        return ALLOWED if allowed else DENIED

    async def _status_of(self, kind: ResourceType, spec: dict[str, Any]) -> dict[str, Any]:
        review = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, "spec": spec}
        answer = await self._client.create(kind, review)
        status = answer.get("status")
        if not isinstance(status, dict):
            raise ApiError(500, "InternalError", f"a {kind.kind} came back without a status")
        return status
