"""Who the caller is, in the words of the API server, and which jobs are theirs."""

from collections.abc import Mapping
from typing import Any

from clusterops.api.names import ANNOTATION_USER, ResourceType
from clusterops.cli.connection import Session
from clusterops.kube.errors import ApiError

_SELF_REVIEWS = ResourceType(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False
)


async def user_of(session: Session) -> str:
    """The caller's user name; empty where the server does not tell people who they are."""
    review = {"apiVersion": _SELF_REVIEWS.api_version, "kind": _SELF_REVIEWS.kind}
    try:
        answer = await session.client.create(_SELF_REVIEWS, {**review, "metadata": {}})
    except ApiError:
        return ""
    told = (answer.get("status") or {}).get("userInfo") or {}
    return str(told.get("username") or "")


def marked(job: dict[str, Any], user: str) -> dict[str, Any]:
    """The job with its submitter's name, unless it names one itself: an admission policy decides
    whether that may stand.
    """
    metadata = job["metadata"]
    annotations = metadata.get("annotations") or {}
    if not user or ANNOTATION_USER in annotations:
        return job
    return {
        **job,
        "metadata": {**metadata, "annotations": {**annotations, ANNOTATION_USER: user}},
    }


def submitter(annotations: Mapping[str, str] | None) -> str:
    """Who submitted a job; empty when it does not say."""
    return (annotations or {}).get(ANNOTATION_USER, "")
