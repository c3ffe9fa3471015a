"""Every name that more than one room uses, said once: kinds, labels, annotations, environment.

Standard library only, so that the library inside users' jobs can import it for nothing.
"""

from typing import NamedTuple

GROUP = "clusterops.io"
VERSION = "v1alpha1"
KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSION = "v1beta2"


class ResourceType(NamedTuple):
    """Where the Kubernetes API keeps one kind. `group` is empty for core kinds."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The `apiVersion` that objects of this kind carry."""
        return f"{self.group}/{self.version}" if self.group else self.version


TRAINING_JOBS = ResourceType(GROUP, VERSION, "trainingjobs", "TrainingJob", True)
NODE_HEALTHS = ResourceType(GROUP, VERSION, "nodehealths", "NodeHealth", False)

WORKLOADS = ResourceType(KUEUE_GROUP, KUEUE_VERSION, "workloads", "Workload", True)
CLUSTER_QUEUES = ResourceType(KUEUE_GROUP, KUEUE_VERSION, "clusterqueues", "ClusterQueue", False)
LOCAL_QUEUES = ResourceType(KUEUE_GROUP, KUEUE_VERSION, "localqueues", "LocalQueue", True)
COHORTS = ResourceType(KUEUE_GROUP, KUEUE_VERSION, "cohorts", "Cohort", False)
RESOURCE_FLAVORS = ResourceType(
    KUEUE_GROUP, KUEUE_VERSION, "resourceflavors", "ResourceFlavor", False
)
WORKLOAD_PRIORITY_CLASSES = ResourceType(
    KUEUE_GROUP, KUEUE_VERSION, "workloadpriorityclasses", "WorkloadPriorityClass", False
)
TOPOLOGIES = ResourceType(KUEUE_GROUP, KUEUE_VERSION, "topologies", "Topology", False)
ADMISSION_CHECKS = ResourceType(
    KUEUE_GROUP, KUEUE_VERSION, "admissionchecks", "AdmissionCheck", False
)

NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", False)
PODS = ResourceType("", "v1", "pods", "Pod", True)
NODES = ResourceType("", "v1", "nodes", "Node", False)
EVENTS = ResourceType("", "v1", "events", "Event", True)
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap", True)
SECRETS = ResourceType("", "v1", "secrets", "Secret", True)
SERVICES = ResourceType("", "v1", "services", "Service", True)
SERVICE_ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount", True)
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease", True)

# Every kind above by its name; none occurs in two groups.
KINDS = {one.kind: one for one in list(globals().values()) if isinstance(one, ResourceType)}

# Labels on the pods of a job, and on what belongs to it.
LABEL_JOB = "clusterops.io/job"
LABEL_ATTEMPT = "clusterops.io/attempt"
LABEL_RANK = "clusterops.io/rank"
LABEL_SIMULATED = "clusterops.io/simulated"  # on nodes whose GPUs are simulated

ANNOTATION_USER = "clusterops.io/user"
# On a pod: the checkpoint directory that its processes were told; empty for none.
ANNOTATION_CHECKPOINT_DIR = "clusterops.io/checkpoint-directory"
# On a node that going down cordoned, so that coming up lets pods back on it and on no other.
ANNOTATION_DRAINED = "clusterops.io/drained-by"
# On a pod that is ended in place, and stays for its logs: seconds from its TERM to its KILL.
ANNOTATION_ENDS_WITHIN = "clusterops.io/ends-within"
# On a NodeHealth and on a verification pod: what the operator needs to go on with a remediation.
ANNOTATION_REMEDIATION = "clusterops.io/remediation"
# On a node whose repair an agent of the site's carries out: what is wanted, and what it answers.
ANNOTATION_ORDER = "clusterops.io/remediation-order"
ANNOTATION_ANSWER = "clusterops.io/remediation-answer"
# On a node with our taint: how many seconds its fault leaves jobs to save; 0 = none.
ANNOTATION_NOTICE = "clusterops.io/health-notice-seconds"

TAINT_HEALTH = "clusterops.io/health"
TAINT_PROCESS_RUNTIME = "clusterops.io/process-runtime"

# On the Workload of a job: quota is held until its pods are gone.
FINALIZER_PODS_GONE = "clusterops.io/pods-gone"
# On a TrainingJob: its pods end in order before the object goes.
FINALIZER_JOB = "clusterops.io/training-job"

KUEUE_LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
KUEUE_ANNOTATION_PRIORITY_BOOST = "kueue.x-k8s.io/priority-boost"
KUEUE_ANNOTATION_ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
GATE_CHECKPOINT_FIRST = "clusterops.io/checkpoint-first"

RESOURCE_GPU = "nvidia.com/gpu"

# What a job's process sees.
ENV_JOB = "CLUSTEROPS_JOB"
ENV_NAMESPACE = "CLUSTEROPS_NAMESPACE"
ENV_JOB_UID = "CLUSTEROPS_JOB_UID"
ENV_ATTEMPT = "CLUSTEROPS_ATTEMPT"
ENV_POD_RANK = "CLUSTEROPS_POD_RANK"
ENV_PODS = "CLUSTEROPS_PODS"
ENV_CHECKPOINT_DIR = "CLUSTEROPS_CHECKPOINT_DIR"
ENV_AGENT_URL = "CLUSTEROPS_AGENT_URL"
ENV_AGENT_TOKEN_FILE = "CLUSTEROPS_AGENT_TOKEN_FILE"
ENV_AGENT_CA_FILE = "CLUSTEROPS_AGENT_CA_FILE"
ENV_HOME = "CLUSTEROPS_HOME"  # the state folder, for the command line

# torch's names for rendezvous and rank.
ENV_NNODES = "PET_NNODES"
ENV_NODE_RANK = "PET_NODE_RANK"
ENV_MASTER_ADDR = "MASTER_ADDR"
ENV_MASTER_PORT = "MASTER_PORT"
ENV_RANK = "RANK"
ENV_WORLD_SIZE = "WORLD_SIZE"
ENV_LOCAL_RANK = "LOCAL_RANK"


def pod_name(job: str, attempt: int, rank: int) -> str:
    """The name of the pod of one rank in one attempt: JOB-ATTEMPT-RANK."""
    return f"{job}-{attempt}-{rank}"
