"""The real kubectl, pointed at an embedded server, with a cache of its own."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.embedded import EmbeddedServer

COMMAND_SECONDS = 60.0
# Another version is tried by naming its program here.
PROGRAM = os.environ.get("CLUSTEROPS_TEST_KUBECTL", "kubectl")
MISSING = shutil.which(PROGRAM) is None


@dataclass
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, read as JSON."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """Standard output as words, line by line."""
        return [line.split() for line in self.out.splitlines()]


class Kubectl:
    """Runs kubectl in one namespace. `folder` is for its cache and for manifests."""

    def __init__(self, server: EmbeddedServer, namespace: str, folder: Path) -> None:
        self.server = server
        self.namespace = namespace
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(server.kubeconfig),
            "TMPDIR": str(folder),
        }

    def arguments(self, *words: str) -> list[str]:
        """The argument vector of a command."""
        return [PROGRAM, f"--cache-dir={self.folder / 'cache'}", "-n", self.namespace, *words]

    def try_(self, *words: str, environment: dict[str, str] | None = None) -> Outcome:
        """Run a command that may fail."""
        done = subprocess.run(
            self.arguments(*words),
            env={**self.environment, **(environment or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def __call__(self, *words: str, environment: dict[str, str] | None = None) -> Outcome:
        """Run a command that must succeed."""
        outcome = self.try_(*words, environment=environment)
        assert outcome.code == 0, f"kubectl {' '.join(words)}: {outcome.err}{outcome.out}"
        return outcome

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object, read through kubectl."""
        found: dict[str, Any] = self("get", kind, name, "-o", "json").json
        return found

    def file(self, *objects: dict[str, Any], name: str = "manifest.yaml") -> str:
        """A manifest with these objects; its path."""
        path = self.folder / name
        # JSON is YAML that everybody reads alike (an unquoted `y` is not).
        path.write_text("\n---\n".join(json.dumps(obj) for obj in objects))
        return str(path)

    def path(self, resource: str, name: str = "") -> str:
        """The URL path of a core resource in the namespace."""
        return f"/api/v1/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")

    def start(self, *words: str) -> "Running":
        """Start a command that goes on, such as a watch."""
        return Running(self, words)


class Running:
    """A command in the background; what it prints is read from a file. Ends with the block."""

    def __init__(self, kubectl: Kubectl, words: tuple[str, ...]) -> None:
        self._words = words
        self._out = kubectl.folder / f"out-{time.monotonic_ns()}"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                kubectl.arguments(*words),
                env=kubectl.environment,
                cwd=kubectl.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    def wait_for(self, condition: Callable[[str], bool], what: str) -> str:
        """Wait until what was printed satisfies a condition."""
        deadline = time.monotonic() + COMMAND_SECONDS
        while not condition(self.out):
            assert time.monotonic() < deadline, f"{self._words}: no {what} in {self.out!r}"
            time.sleep(0.02)
        return self.out

    def wait(self) -> int:
        """The exit code, once it ends by itself."""
        return self.process.wait(COMMAND_SECONDS)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(COMMAND_SECONDS)


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The first true result of a condition, asked again and again until a deadline."""
    deadline = time.monotonic() + COMMAND_SECONDS
    while True:
        if result := condition():
            return result
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
