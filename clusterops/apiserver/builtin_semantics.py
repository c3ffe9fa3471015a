"""What the models of built-in kinds do not say: how lists merge, what is required, what defaults.

`builtin_types.json` names fields and types; these tables add the meaning that kubectl users rely on.
"""

from typing import Any

# type -> field -> (keys of the list, key of strategic merges, its strategies). Lists that are not
# named here are atomic: they are owned and replaced as a whole.
MAP_LISTS: dict[str, dict[str, tuple[tuple[str, ...], str, str]]] = {
    "PodSpec": {
        "containers": (("name",), "name", "merge"),
        "initContainers": (("name",), "name", "merge"),
        "ephemeralContainers": (("name",), "name", "merge"),
        "volumes": (("name",), "name", "merge,retainKeys"),
        "imagePullSecrets": (("name",), "name", "merge"),
        "hostAliases": (("ip",), "ip", "merge"),
        "topologySpreadConstraints": (
            ("topologyKey", "whenUnsatisfiable"),
            "topologyKey",
            "merge",
        ),
        "schedulingGates": (("name",), "name", "merge"),
        "resourceClaims": (("name",), "name", "merge,retainKeys"),
    },
    "PodStatus": {
        "conditions": (("type",), "type", "merge"),
        "podIPs": (("ip",), "ip", "merge"),
        "resourceClaimStatuses": (("name",), "name", "merge,retainKeys"),
    },
    "NodeStatus": {
        "conditions": (("type",), "type", "merge"),
        "addresses": (("type",), "type", "merge"),
    },
    "ServiceSpec": {"ports": (("port", "protocol"), "port", "merge")},
    "ServiceStatus": {"conditions": (("type",), "type", "merge")},
    "NamespaceStatus": {"conditions": (("type",), "type", "merge")},
    "ServiceAccount": {"secrets": (("name",), "name", "merge")},
    "CustomResourceDefinitionStatus": {"conditions": (("type",), "", "")},
    "ResourceRequirements": {"claims": (("name",), "", "")},
    **{
        container: {
            "env": (("name",), "name", "merge"),
            "ports": (("containerPort", "protocol"), "containerPort", "merge"),
            "volumeMounts": (("mountPath",), "mountPath", "merge"),
            "volumeDevices": (("devicePath",), "devicePath", "merge"),
        }
        for container in ("Container", "EphemeralContainer")
    },
}
SET_LISTS = {("NodeSpec", "podCIDRs")}

# Objects that have one owner as a whole.
ATOMIC_TYPES = frozenset(
    {
        "ConfigMapKeySelector",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "ResourceFieldSelector",
        "SecretKeySelector",
        "SecretReference",
        "TypedLocalObjectReference",
    }
)

# Required fields that the server insists on. Status types are left out: real API servers do not
# check them, and nodes report what they know.
REQUIRED: dict[str, tuple[str, ...]] = {
    "Binding": ("target",),
    "ConfigMapKeySelector": ("key",),
    "Container": ("name",),
    "ContainerPort": ("containerPort",),
    "CustomResourceDefinition": ("spec",),
    "CustomResourceDefinitionNames": ("kind", "plural"),
    "CustomResourceDefinitionSpec": ("group", "names", "scope", "versions"),
    "CustomResourceDefinitionVersion": ("name", "served", "storage"),
    "CustomResourceColumnDefinition": ("jsonPath", "name", "type"),
    "EnvVar": ("name",),
    "EphemeralContainer": ("name",),
    "Event": ("involvedObject",),
    "HTTPGetAction": ("port",),
    "HostPathVolumeSource": ("path",),
    "KeyToPath": ("key", "path"),
    "NodeSelector": ("nodeSelectorTerms",),
    "NodeSelectorRequirement": ("key", "operator"),
    "ObjectFieldSelector": ("fieldPath",),
    "PersistentVolumeClaimVolumeSource": ("claimName",),
    "Pod": ("spec",),
    "PodSpec": ("containers",),
    "ResourceFieldSelector": ("resource",),
    "SecretKeySelector": ("key",),
    "SelfSubjectAccessReview": ("spec",),
    "ServicePort": ("port",),
    "SubjectAccessReview": ("spec",),
    "TCPSocketAction": ("port",),
    "Taint": ("effect", "key"),
    "TokenReview": ("spec",),
    "Volume": ("name",),
    "VolumeMount": ("mountPath", "name"),
}

DEFAULTS: dict[str, dict[str, Any]] = {
    "PodSpec": {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    },
    "PodStatus": {"phase": "Pending"},
    **{
        container: {
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
        for container in ("Container", "EphemeralContainer")
    },
    "ContainerPort": {"protocol": "TCP"},
    "Probe": {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
    "HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "ObjectFieldSelector": {"apiVersion": "v1"},
    "SecretVolumeSource": {"defaultMode": 420},
    "ConfigMapVolumeSource": {"defaultMode": 420},
    "DownwardAPIVolumeSource": {"defaultMode": 420},
    "ProjectedVolumeSource": {"defaultMode": 420},
    "ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "HostPathVolumeSource": {"type": ""},
    "Secret": {"type": "Opaque"},
    "ServiceSpec": {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    },
    "ServicePort": {"protocol": "TCP"},
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "CustomResourceDefinitionSpec": {"conversion": {"strategy": "None"}},
}

ENUMS: dict[tuple[str, str], tuple[str, ...]] = {
    ("PodSpec", "restartPolicy"): ("Always", "OnFailure", "Never"),
    ("PodSpec", "dnsPolicy"): ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    ("Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("Container", "terminationMessagePolicy"): ("File", "FallbackToLogsOnError"),
    ("ContainerPort", "protocol"): ("SCTP", "TCP", "UDP"),
    ("Taint", "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("Toleration", "operator"): ("Equal", "Exists", "Lt", "Gt"),
    ("ServiceSpec", "type"): ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
    ("ServicePort", "protocol"): ("SCTP", "TCP", "UDP"),
    ("CustomResourceDefinitionSpec", "scope"): ("Cluster", "Namespaced"),
}
