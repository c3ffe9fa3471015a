"""The field names that Kubernetes knows in the parts of a pod template where people mistype them.

Only to recognise a slip of the finger: a name that is not here may be of a newer Kubernetes. A test
compares the lists with the official client's models.
"""

TEMPLATE_FIELDS = (
    "metadata", "spec",
)  # fmt: skip
POD_FIELDS = (
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers",
    "dnsConfig", "dnsPolicy", "enableServiceLinks", "ephemeralContainers", "evictionResponders",
    "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname",
    "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os",
    "overhead", "preemptionPolicy", "priority", "priorityClassName", "readinessGates",
    "resourceClaims", "resources", "restartPolicy", "runtimeClassName", "schedulerName",
    "schedulingGates", "schedulingGroup", "securityContext", "serviceAccount",
    "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
    "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
)  # fmt: skip
CONTAINER_FIELDS = (
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle",
    "livenessProbe", "name", "ports", "readinessProbe", "resizePolicy", "resources",
    "restartPolicy", "restartPolicyRules", "securityContext", "startupProbe", "stdin",
    "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
    "volumeMounts", "workingDir",
)  # fmt: skip
VOLUME_MOUNT_FIELDS = (
    "bindMountOptions", "mountPath", "mountPropagation", "name", "readOnly",
    "recursiveReadOnly", "subPath", "subPathExpr",
)  # fmt: skip
RESOURCES_FIELDS = (
    "claims", "limits", "requests",
)  # fmt: skip
ENV_FIELDS = (
    "name", "value", "valueFrom",
)  # fmt: skip
