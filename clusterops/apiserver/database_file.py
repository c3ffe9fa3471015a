"""Whether a path may hold the database: private, local, and nobody else's at this moment."""

import fcntl
import os
import stat
from pathlib import Path

# File systems whose locks and fsync cannot be trusted from several machines, and what FUSE
# programs that mount remote folders call themselves.
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.beegfs", "fuse.ceph",
        "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2",
        "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs",
        "smb3", "smbfs", "wekafs",
    }
)  # fmt: skip


class StorageError(Exception):
    """The database cannot be used. The text says which file, why, and what to do about it."""


class StorageUnsafe(StorageError):
    """The file or its folder is readable by others, not ours, or on a network file system."""


class StorageLocked(StorageError):
    """Another server has this database open."""


def prepare_folder(folder: Path) -> None:
    """Create `folder` for this user alone, or check that it is so.

    Raises StorageUnsafe when others may enter it or it lies on a network file system, and
    StorageError when it cannot be made or written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        details = folder.stat()
    except OSError as error:
        raise StorageError(
            f"cannot create the folder {folder}: {error.strerror}; choose another state folder"
        ) from error
    if details.st_uid != os.getuid():
        raise StorageUnsafe(f"{folder} belongs to another user; choose a state folder of your own")
    if stat.S_IMODE(details.st_mode) & 0o077:
        raise StorageUnsafe(f"{folder} can be entered by other users; run: chmod 700 {folder}")
    file_system = file_system_of(folder)
    if file_system in NETWORK_FILE_SYSTEMS:
        raise StorageUnsafe(
            f"{folder} is on a network file system ({file_system}), where locks and durable writes "
            "cannot be relied on; choose a state folder on a local disk"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"{folder} is read-only; make it writable or choose another folder")


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds `path`; empty when it cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    resolved = path.resolve()
    best, found = -1, ""
    for line in lines:
        fields, _, after = line.partition(" - ")
        mount_point = Path(_unescaped(fields.split(" ")[4]))
        depth = len(mount_point.parts)
        # Of two mounts on one point the later one hides the earlier.
        if depth >= best and resolved.is_relative_to(mount_point):
            best, found = depth, after.split(" ", 1)[0]
    return found


def _unescaped(text: str) -> str:
    """A path as mountinfo writes it: blanks and backslashes are octal escapes."""
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text


def create_private(path: Path) -> bool:
    """Make sure that `path` is a regular file of mode 0600; whether it is new.

    Raises StorageUnsafe for symbolic links and files of another user.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
        return True
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageError(f"cannot create {path}: {error.strerror}") from error
    details = path.lstat()
    if not stat.S_ISREG(details.st_mode):
        raise StorageUnsafe(f"{path} is not a regular file; move it away and start again")
    if details.st_uid != os.getuid():
        raise StorageUnsafe(f"{path} belongs to another user; choose a state folder of your own")
    if stat.S_IMODE(details.st_mode) & 0o077:
        path.chmod(0o600)
    return False


class FileLock:
    """An exclusive lock that the kernel gives back when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        create_private(path)
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(f"cannot open {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._descriptor, 32).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            whom = f"process {holder}" if holder.isdecimal() else "another process"
            raise StorageLocked(
                f"the database of {path.parent} is in use by {whom}; stop that server first"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes hold it."""
        os.close(self._descriptor)
