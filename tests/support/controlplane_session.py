"""One control plane for all test processes of a run, and for none longer than they live.

    with joined(folder, binaries) as plane: ...

The first that joins starts a supervisor, which starts the control plane with Kueue and what is ours;
the last that leaves, in order or by being killed, ends it: every user holds a shared lock on a file,
and the supervisor waits for the exclusive one. The kernel counts.

Run as a script it is that supervisor.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

# The supervisor imports them as the tests do.
TESTS = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from support.controlplane import ControlPlane, NotReady  # noqa: E402  (after the path)
from support.controlplane_build import built  # noqa: E402  (after the path)
from support.controlplane_kueue import install_kueue  # noqa: E402  (after the path)
from support.controlplane_product import Product  # noqa: E402  (after the path)

START_SECONDS = 180.0
"""Of a machine that does much else; alone it is ready in a few seconds."""


@contextmanager
def joined(folder: Path, binaries: Path) -> Iterator[ControlPlane]:
    """The run's control plane, started if need be. Raises NotReady."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "users.lock").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "start.lock").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            ready = folder / "ready"
            if not ready.exists():
                _start(folder, binaries, ready)
        yield ControlPlane(Path(ready.read_text()), binaries)


def _start(folder: Path, binaries: Path, ready: Path) -> None:
    log_file = folder / "supervisor.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder), str(binaries)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            process.kill()
            process.wait()
            what = "ended" if ended else f"is not ready after {START_SECONDS:g} s"
            raise NotReady(f"the control plane {what}: {log_file.read_text(errors='replace')}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)


def _supervise(folder: Path, binaries: Path) -> None:
    signal.signal(signal.SIGTERM, _leave)
    ready = folder / "ready"
    with (folder / "users.lock").open("a") as users:
        plane = ControlPlane(folder / f"plane-{os.getpid()}", binaries)
        try:
            with plane:
                kueue = install_kueue(plane)
                product = Product(plane)
                try:
                    product.install()
                    product.start()
                    _announce(ready, plane)
                    _wait_for_the_last(users)
                finally:
                    product.stop()
                    kueue.stop()
        finally:
            # Before the lock is given back: who joins from now on starts anew.
            ready.unlink(missing_ok=True)


def _announce(ready: Path, plane: ControlPlane) -> None:
    written = ready.with_suffix(".new")
    written.write_text(str(plane.folder))
    written.rename(ready)


def _wait_for_the_last(users: IO[str]) -> None:
    fcntl.flock(users, fcntl.LOCK_EX)


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _hold(folder: Path) -> None:
    """Keeps one until Ctrl-C."""
    binaries = built()
    assert binaries is not None, "make controlplane"
    with joined(folder, binaries) as plane:
        print(f"export CLUSTEROPS_TEST_CLUSTER={folder} KUBECONFIG={plane.kubeconfig}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "--hold":
        _hold(Path(sys.argv[2]).resolve())
    else:
        _supervise(Path(sys.argv[1]), Path(sys.argv[2]))
