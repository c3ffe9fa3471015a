"""The one folder that local mode lives in: its layout, its rights, its lock.

kubeconfig       for kubectl and the command line (0600)
pki/             the certificate authority made at first start, and the servers' certificates
tokens.json      bearer tokens of the parts (0600)
ports.json       fixed ports, so that running jobs find a restarted operator
clusterops.db    every object of the API server
operator.key     key of the tokens that jobs report with (0600)
logs/            one log per part
nodes/NODE/      what the agent of a node remembers about its pods; health/ and machine/ in it are
                 the health daemon's ledger and, with simulated GPUs, the kernel's log
tickets/         tickets for the vendor of a broken GPU
remediation.yaml what the operator may do to nodes with faults, written anew by every `up`
pod-logs/        what the jobs print
volumes/         the persistent volume claims of the jobs: checkpoints live here
up.pid, lock     who runs here
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusterops.api.names import ENV_HOME
from clusterops.local.errors import AlreadyRunning, PortTaken, UnusableFolder
from clusterops.local.waiting import wait_until

# File systems on which SQLite's locks and durability cannot be relied on.
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "lustre",
    "9p",
    "afs",
    "ceph",
)

# How long somebody who only asks whether the folder is in use may be in the way of who uses it.
PROBE_SECONDS = 0.5

PORT_NAMES = ("apiserver", "endpoint")


def default_path(environ: Mapping[str, str]) -> Path:
    """The state folder when no option names one: $CLUSTEROPS_HOME, else the XDG state folder."""
    if environ.get(ENV_HOME):
        return Path(environ[ENV_HOME]).expanduser().absolute()
    state_home = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state_home).expanduser().absolute() / "clusterops"


@dataclass(frozen=True)
class StateFolder:
    """The paths inside one state folder. Constructing it touches nothing."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def tokens(self) -> Path:
        return self.root / "tokens.json"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    @property
    def database(self) -> Path:
        return self.root / "clusterops.db"

    @property
    def operator_key(self) -> Path:
        return self.root / "operator.key"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pod_logs(self) -> Path:
        return self.root / "pod-logs"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def pid_file(self) -> Path:
        return self.root / "up.pid"

    @property
    def parts_file(self) -> Path:
        """What the supervisor knows of its parts; read by `status`."""
        return self.root / "parts.json"

    @property
    def ready_mark(self) -> Path:
        """Exists while everything runs."""
        return self.root / "ready"

    @property
    def remediation(self) -> Path:
        """What the operator may do to nodes with faults, as `up` decided."""
        return self.root / "remediation.yaml"

    @property
    def tickets(self) -> Path:
        return self.root / "tickets"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def machine(self, node: str) -> Path:
        """What stands in the place of a kernel and a driver where GPUs are simulated."""
        return self.node(node) / "machine"

    def part_kubeconfig(self, part: str) -> Path:
        """Each part has a token, and so a kubeconfig, of its own."""
        return self.root / "kubeconfigs" / part

    def create(self) -> None:
        """Makes the folder and its sub-folders, closed to other users.

        Raises:
            UnusableFolder: it cannot be made or written, belongs to somebody else, or lies on a
                network file system.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.root.stat().st_uid != os.getuid():
                raise UnusableFolder(
                    f"{self.root} belongs to another user",
                    "choose a folder of your own with --state-dir",
                )
            self.root.chmod(0o700)
            for folder in (
                self.pki,
                self.logs,
                self.pod_logs,
                self.volumes,
                self.root / "kubeconfigs",
            ):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UnusableFolder(
                f"{self.root} cannot be used: {error.strerror or error}",
                "make it writable, free some space, or choose another folder with --state-dir",
            ) from error
        kind = file_system_of(self.root)
        if kind in NETWORK_FILE_SYSTEMS:
            raise UnusableFolder(
                f"{self.root} lies on a network file system ({kind}), where the database is not safe",
                "choose a folder on a local disk with --state-dir",
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for this process. The kernel lets go when the process ends, however it
        ends, so a stale pid file never stands in the way.

        Raises:
            AlreadyRunning: another process holds it.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Who asks whether it is held holds it, too, for an instant.
            if not wait_until(lambda: _take(descriptor), PROBE_SECONDS):
                raise AlreadyRunning(str(self.root), self.running_pid())
            write_atomically(self.pid_file, f"{os.getpid()}\n")
            try:
                yield
            finally:
                self.pid_file.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def running_pid(self) -> int | None:
        """The process that holds the folder, as its pid file says; None when nobody holds it."""
        if not self.is_locked():
            return None
        try:
            return int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None

    def is_locked(self) -> bool:
        """True while some process holds the folder."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def fixed_ports(self) -> dict[str, int]:
        """The folder's ports, chosen at first use and the same ever after.

        Raises:
            PortTaken: another program listens on one of them.
        """
        ports = self._known_ports()
        if ports is None:
            ports = _free_ports()
            write_atomically(self.ports, json.dumps(ports, indent=2) + "\n")
        for name, port in ports.items():
            if not _can_bind(port):
                raise PortTaken(port, name)
        return ports

    def _known_ports(self) -> dict[str, int] | None:
        """The ports in the file; None when it is not there or says what no ports can be."""
        try:
            known = json.loads(self.ports.read_text())
            ports = {name: int(known[name]) for name in PORT_NAMES}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        distinct = len(set(ports.values())) == len(ports)
        return ports if distinct and all(0 < port < 1 << 16 for port in ports.values()) else None


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replaces a file as a whole: readers see the old content or the new, never a part.

    Raises:
        OSError: it cannot be written; the old content stays, and nothing else is left.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        # What failed while writing, as on a full disk, knows no file name.
        raise OSError(error.errno, error.strerror, str(path)) from error


def file_system_of(path: Path) -> str:
    """The type of the file system that holds `path`, by the longest mount point above it."""
    best, kind = "", ""
    with Path("/proc/self/mounts").open(encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            point, this = line.split()[1:3]
            point = point.replace("\\040", " ")
            inside = path.is_relative_to(point)
            if inside and len(point) >= len(best):
                best, kind = point, this
    return kind


def _take(lock: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free_ports() -> dict[str, int]:
    # All are held open together, so that no two get the same one.
    sockets = [socket.socket() for _ in PORT_NAMES]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return {
            name: int(one.getsockname()[1]) for name, one in zip(PORT_NAMES, sockets, strict=True)
        }
    finally:
        for one in sockets:
            one.close()


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
