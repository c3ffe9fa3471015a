"""What a node agent is told when it starts. Plain values, checked once; no I/O but the checks."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


class ConfigurationError(ValueError):
    """The agent cannot run with these settings; the text names the setting and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentConfig:
    """Settings of one node agent. Paths are made absolute by `run.serve`.

    `embedded`: the API server is the embedded one of this machine and this user. When False the
    agent serves somebody else's cluster, so its Node carries the taint
    `clusterops.io/process-runtime:NoSchedule`, only pods owned by a TrainingJob in
    `allowed_namespaces` run, hostPath volumes must lie under `host_path_roots`, runAsNonRoot is
    honoured, and the agent refuses to run as root unless `allow_root`.
    """

    kubeconfig: Path | None
    """None: $KUBECONFIG, ~/.kube/config, or the in-cluster credentials, in this order."""
    node_name: str
    state_dir: Path
    """Of this node alone: records of pods, their emptyDir volumes and temporary files."""
    pod_logs_dir: Path
    """Log files, `<namespace>_<pod>_<uid>/<container>/<restart>.log`; may be shared by nodes."""
    volumes_dir: Path
    """Folders of persistentVolumeClaims, `<namespace>/<claim>`; shared by the nodes of a machine."""
    simulated_gpus: int | None = None
    """None: the GPUs that NVML finds, if any."""
    gpu_indices: tuple[int, ...] | None = None
    """Of the real GPUs only these, so that two agents can share a machine. None: all."""
    boot_id: str | None = None
    """What the Node says of its boot, where several simulated machines share a real one."""
    embedded: bool = True
    allowed_namespaces: tuple[str, ...] = ()
    host_path_roots: tuple[Path, ...] = ()
    allow_root: bool = False
    node_ip: str = "127.0.0.1"
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels of the Node."""
    max_pods: int = 110
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    """Per container, the current file included."""
    log_retention_seconds: float = 24 * 3600.0
    """How long log files stay after their pod's object is gone."""
    end_pods_on_stop: bool = False
    """False: running pods go on without the agent and are adopted by the next one. True: stopping
    the agent ends them (TERM, `stop_grace_seconds`, KILL) and says so in their status."""
    stop_grace_seconds: float = 10.0
    lease_seconds: int = 40
    """The Node counts as lost when its lease was not renewed for so long; renewed four times as often."""
    node_status_seconds: float = 300.0
    """An unchanged Node status is confirmed this often."""
    at_write_point: Callable[[str], None] = lambda _name: None
    """Called with the name of each write point as it is passed (`WRITE_POINTS`); tests crash there."""

    def check(self, uid: int) -> None:
        """Refuses settings that cannot work, or that are not safe for this user id.

        Raises:
            ConfigurationError: names the setting.
        """
        if not _NODE_NAME.fullmatch(self.node_name):
            raise ConfigurationError(
                f"node name {self.node_name!r} must be lower-case letters, digits, '-' and '.', at"
                " most 63, beginning and ending with a letter or digit"
            )
        if self.simulated_gpus is not None and not 0 <= self.simulated_gpus <= 1024:
            raise ConfigurationError(
                f"simulated GPUs must be from 0 to 1024, not {self.simulated_gpus}"
            )
        if self.log_max_bytes < 64 << 10 or self.log_max_files < 1:
            raise ConfigurationError("a log needs at least 64 KiB a file and one file")
        if self.lease_seconds < 4:
            raise ConfigurationError("a lease of less than 4 seconds cannot be renewed in time")
        if self.embedded:
            return
        if uid == 0 and not self.allow_root:
            raise ConfigurationError(
                "refusing to run a cluster's pods as root: processes of pods run as the agent's"
                " user. Start the agent as an unprivileged user, or allow root explicitly"
            )
        if not self.allowed_namespaces:
            raise ConfigurationError(
                "serving a cluster needs the namespaces whose TrainingJobs may run here; with none"
                " allowed no pod could ever start"
            )


WRITE_POINTS = (
    "pod-recorded",  # pod.json: the pod is ours, its GPUs are taken
    "volumes-written",
    "launch-written",  # launch.json: everything is ready to start
    "shim-started",
    "stop-requested",  # stop.json is there, the shim not told yet
    "stop-sent",
    "leftovers-ended",  # of a run whose shim was killed, exit.json not written yet
    "exit-written",
    "status-written",
    "pod-deleted",  # the API server confirmed, nothing removed here yet
    "pod-ended",  # GPUs are free again
    "pod-forgotten",
)
