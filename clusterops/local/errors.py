"""What can keep local mode from starting or stopping, each with its way out."""


class LocalModeError(Exception):
    """Base: `str()` says what happened and why, `way_out` what to do about it."""

    def __init__(self, what: str, way_out: str) -> None:
        super().__init__(what)
        self.way_out = way_out


class AlreadyRunning(LocalModeError):
    """Another `up` holds this state folder; `pid` is its process, None when unreadable."""

    def __init__(self, folder: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"local mode already runs in {folder} ({holder})",
            "use it as it is, stop it with `clusterops down`, or choose another --state-dir",
        )
        self.pid = pid


class NotRunning(LocalModeError):
    """No `up` holds this state folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(f"local mode does not run in {folder}", "start it with `clusterops up`")


class UnusableFolder(LocalModeError):
    """The state folder cannot be used: read-only, not ours, on a network file system, full."""


class PortTaken(LocalModeError):
    """A fixed port of this state folder is in use by another program."""

    def __init__(self, port: int, part: str) -> None:
        super().__init__(
            f"port {port} on 127.0.0.1, which the {part} of this state folder uses, is taken",
            "stop the program that listens there, or delete ports.json in the state folder while no "
            "job runs, so that new ports are chosen",
        )


class StartFailed(LocalModeError):
    """A part ended or stayed silent while it was starting; the last lines of its log are in the text."""
