"""What one batch of writes about one job carries along: names, versions reached, who owns what."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from clusterops.core import workload as workloads
from clusterops.core.observed import Observed, TrainingJob
from clusterops.kube.errors import KubeError

Json = dict[str, Any]


class NameTaken(KubeError):
    """Something that is not this job's has the name that one of its objects needs."""


class Identity(NamedTuple):
    """What ranks need in order to report: token of (job uid, attempt), and the CA in PEM."""

    token: Callable[[str, int], str]
    ca_pem: bytes


class Batch:
    """The versions that one batch of actions has reached; each write moves its own on."""

    def __init__(self, job: TrainingJob, observed: Observed, now: datetime) -> None:
        self.job = job
        self.now = now
        self.job_version = job.metadata.resource_version
        workload = observed.workload
        self.workload_name = workloads.workload_name(job)
        self.workload_version = workload.metadata.resource_version if workload is not None else ""

    @property
    def namespace(self) -> str:
        """Of the job and of everything that belongs to it."""
        return self.job.metadata.namespace

    @property
    def name(self) -> str:
        """The job's."""
        return self.job.metadata.name


def owned(raw: Json, uid: str) -> bool:
    """True when the object belongs to the job with that uid."""
    owners = raw["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == uid for owner in owners)


def version(raw: Json) -> str:
    """The resourceVersion of a raw object, empty when it has none."""
    return str((raw.get("metadata") or {}).get("resourceVersion") or "")
