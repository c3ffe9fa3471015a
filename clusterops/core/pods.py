"""The pods of an attempt, as the job's template asks for and the admission allows.

Each is one rank of pods: named JOB-ATTEMPT-RANK, labelled, owned by the job, never restarted in
place, placed on the nodes of the flavors that were assigned, with the environment that torch and
`clusterops.train` read, and with the attempt's token mounted.
"""

import copy
from collections.abc import Mapping
from typing import Any

from clusterops.api import names
from clusterops.core.notice import gang_size
from clusterops.core.observed import Observed, TrainingJob
from clusterops.core.settings import Settings
from clusterops.core.workload import owner_reference

AGENT_MOUNT = "/var/run/clusterops"
AGENT_VOLUME = "clusterops-agent"
TOKEN_KEY = "token"
CA_KEY = "ca.crt"
MASTER_PORT = 29500
"""Where ranks meet when each pod has an address of its own."""
LOOPBACK = "127.0.0.1"


def secret_name(job: TrainingJob, attempt: int) -> str:
    """The Secret with the token of one attempt."""
    return f"{job.metadata.name}-{attempt}-agent"


def service_name(job: TrainingJob) -> str:
    """The headless Service of the job's pods."""
    return f"{job.metadata.name}-ranks"


def selector_labels(job: TrainingJob) -> dict[str, str]:
    """Labels that every pod of the job carries."""
    return {names.LABEL_JOB: job.metadata.name}


def desired_service(job: TrainingJob) -> dict[str, Any]:
    """Gives every pod a name that resolves before it is ready: ranks wait for one another."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": job.metadata.namespace,
            "name": service_name(job),
            "labels": selector_labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector_labels(job),
            "ports": [{"name": "rendezvous", "port": MASTER_PORT}],
        },
    }


def desired_pod(
    job: TrainingJob, observed: Observed, attempt: int, rank: int, settings: Settings
) -> dict[str, Any]:
    """The pod of one rank."""
    template = copy.deepcopy(job.spec.template)
    metadata = template.get("metadata") or {}
    spec: dict[str, Any] = template.get("spec") or {}
    name = names.pod_name(job.metadata.name, attempt, rank)
    labels = {**(metadata.get("labels") or {}), **_labels(job, attempt, rank)}
    annotations = dict(metadata.get("annotations") or {})
    user = job.metadata.annotation(names.ANNOTATION_USER)
    if user:
        annotations[names.ANNOTATION_USER] = user
    annotations[names.ANNOTATION_CHECKPOINT_DIR] = job.spec.checkpoint.directory or ""
    _place(spec, labels, annotations, observed)
    _keep_off(spec, avoided_nodes(job, settings))
    spec["restartPolicy"] = "Never"
    # A kubelet that ends it in place gives it this long, as does a drain by hand.
    window = round(
        min(float(job.spec.checkpoint.grace_period_seconds), settings.longest_grace_seconds)
    )
    own = spec.get("terminationGracePeriodSeconds")
    spec["terminationGracePeriodSeconds"] = max(window, own) if isinstance(own, int) else window
    if settings.runtime == "containers":
        spec["hostname"] = name
        spec["subdomain"] = service_name(job)
    environment = rank_environment(job, observed, attempt, rank, settings)
    if settings.agent_url:
        _mount_agent(spec, job, attempt)
    for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        own = [
            entry for entry in container.get("env") or [] if entry.get("name") not in environment
        ]
        # Ours come first, so that the user's own values may refer to them as $(NAME).
        ours = [{"name": key, "value": value} for key, value in environment.items()]
        container["env"] = ours + own
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": job.metadata.namespace,
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def rank_environment(
    job: TrainingJob, observed: Observed, attempt: int, rank: int, settings: Settings
) -> dict[str, str]:
    """What the processes of one pod are told. RANK and its kin only where a pod is one process."""
    count = gang_size(job, observed.workload)
    address, port = rendezvous(job, attempt, settings)
    environment = {
        names.ENV_JOB: job.metadata.name,
        names.ENV_NAMESPACE: job.metadata.namespace,
        names.ENV_JOB_UID: job.metadata.uid,
        names.ENV_ATTEMPT: str(attempt),
        names.ENV_POD_RANK: str(rank),
        names.ENV_PODS: str(count),
        names.ENV_NNODES: str(count),
        names.ENV_NODE_RANK: str(rank),
        names.ENV_MASTER_ADDR: address,
        names.ENV_MASTER_PORT: str(port),
    }
    if job.spec.checkpoint.directory is not None:
        environment[names.ENV_CHECKPOINT_DIR] = job.spec.checkpoint.directory
    if settings.agent_url:
        environment[names.ENV_AGENT_URL] = settings.agent_url
        environment[names.ENV_AGENT_TOKEN_FILE] = f"{AGENT_MOUNT}/{TOKEN_KEY}"
        environment[names.ENV_AGENT_CA_FILE] = f"{AGENT_MOUNT}/{CA_KEY}"
    if job.spec.processes_per_pod == 1:
        environment[names.ENV_RANK] = str(rank)
        environment[names.ENV_WORLD_SIZE] = str(count)
        environment[names.ENV_LOCAL_RANK] = "0"
    return environment


def rendezvous(job: TrainingJob, attempt: int, settings: Settings) -> tuple[str, int]:
    """Address and port at which the ranks of an attempt meet."""
    if settings.runtime == "processes":
        return LOOPBACK, job.status.master_port or MASTER_PORT
    host = names.pod_name(job.metadata.name, attempt, 0)
    return f"{host}.{service_name(job)}.{job.metadata.namespace}.svc", MASTER_PORT


def _labels(job: TrainingJob, attempt: int, rank: int) -> dict[str, str]:
    return {
        **selector_labels(job),
        names.LABEL_ATTEMPT: str(attempt),
        names.LABEL_RANK: str(rank),
    }


def _place(
    spec: dict[str, Any], labels: dict[str, str], annotations: dict[str, str], observed: Observed
) -> None:
    """Adds what the assigned flavors and the admission checks require."""
    workload = observed.workload
    admission = workload.status.admission if workload is not None else None
    if workload is None or admission is None:
        return
    selector = dict(spec.get("nodeSelector") or {})
    tolerations: list[Mapping[str, Any]] = list(spec.get("tolerations") or [])
    for assigned in admission.pod_set_assignments:
        for flavor_name in dict.fromkeys((assigned.flavors or {}).values()):
            flavor = observed.flavors.get(flavor_name)
            if flavor is not None:
                selector.update(flavor.node_labels)
                tolerations.extend(flavor.tolerations)
    for check in workload.status.admission_checks or ():
        for update in check.pod_set_updates or ():
            labels.update(update.labels or {})
            annotations.update(update.annotations or {})
            selector.update(update.node_selector or {})
            tolerations.extend(update.tolerations or ())
    if selector:
        spec["nodeSelector"] = selector
    if tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in _distinct(tolerations)]


def avoided_nodes(job: TrainingJob, settings: Settings) -> tuple[str, ...]:
    """The nodes whose faults ended attempts of this job not long before its current one began."""
    begun = job.status.attempt_begun_at
    recent = [
        attempt.faulty_nodes or ()
        for attempt in job.status.attempts
        if attempt.ended_at is not None
        and begun is not None
        and (begun - attempt.ended_at).total_seconds() < settings.avoid_node_seconds
    ]
    return tuple(sorted({name for names_of_one in recent for name in names_of_one}))


def _keep_off(spec: dict[str, Any], nodes: tuple[str, ...]) -> None:
    """Prefers other nodes by name: the taint keeps pods off until a node is proven, and then the job
    must not wait for ever where there is no other. A template that tolerates the taint is kept off
    for as long as the attempt lasts, in each of its own alternatives.
    """
    if not nodes:
        return
    # One name a requirement: the API server takes no more in a match on fields.
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    preferred = affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    preferred.append({"weight": 100, "preference": {"matchFields": others}})
    if not any(_tolerates_faults(each) for each in spec.get("tolerations") or ()):
        return
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *others]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]


def _tolerates_faults(toleration: Mapping[str, Any]) -> bool:
    return toleration.get("key") in (None, "", names.TAINT_HEALTH)


def _distinct(tolerations: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    distinct: list[Mapping[str, Any]] = []
    for toleration in tolerations:
        if toleration not in distinct:
            distinct.append(toleration)
    return distinct


def _mount_agent(spec: dict[str, Any], job: TrainingJob, attempt: int) -> None:
    volumes = [v for v in spec.get("volumes") or [] if v.get("name") != AGENT_VOLUME]
    secret = {"secretName": secret_name(job, attempt)}
    spec["volumes"] = [*volumes, {"name": AGENT_VOLUME, "secret": secret}]
    mount = {"name": AGENT_VOLUME, "mountPath": AGENT_MOUNT, "readOnly": True}
    for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        mounts = [m for m in container.get("volumeMounts") or [] if m.get("name") != AGENT_VOLUME]
        container["volumeMounts"] = [*mounts, mount]
