"""The rooms' import rules hold, and the contracts would notice if they did not."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.tidy_source import ROOT, python_sources

LINT = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]

# One forbidden import per contract, by the module that does it.
BREACHES = {
    "api-imports-nothing-of-ours": ("clusterops/api/a.py", "import clusterops.kube.client"),
    "api-does-no-io": ("clusterops/api/b.py", "import pathlib"),
    "shared-names-are-stdlib": ("clusterops/api/names.py", "import pydantic"),
    "decisions-import-api-only": ("clusterops/scheduling/a.py", "import clusterops.kube.client"),
    "decisions-are-pure": ("clusterops/core/b.py", "import time"),
    "core-and-scheduling-apart": ("clusterops/core/c.py", "import clusterops.scheduling.a"),
    "kube-knows-nothing-of-training": ("clusterops/kube/a.py", "import clusterops.api.b"),
    "apiserver-knows-nothing-of-training": ("clusterops/apiserver/a.py", "import clusterops.api.b"),
    "queueing": ("clusterops/queueing/a.py", "import clusterops.operator.a"),
    "nodeagent": ("clusterops/nodeagent/a.py", "import clusterops.apiserver.b"),
    "operator": ("clusterops/operator/a.py", "import clusterops.queueing.b"),
    "local-starts-processes": ("clusterops/local/a.py", "import clusterops.operator.b"),
    "sim-imports-decisions": ("clusterops/sim/a.py", "import time"),
    "train-lives-in-users-jobs": ("clusterops/train/a.py", "import clusterops.core.d"),
    "dashboard-decides-nothing": ("clusterops/dashboard/views/a.py", "import socket"),
    "nobody-imports-the-command-line": ("clusterops/kube/c.py", "import clusterops.cli.main"),
    "health-verdicts-are-pure": ("health/verdict/a.py", "import time"),
    "health-shell": ("health/daemon.py", "import clusterops.operator.b"),
    "rlhf-queue-is-light": ("rlhf/reward_queue.py", "import torch"),
    "rlhf-imports-train": ("rlhf/trainer.py", "import clusterops.core.d"),
}
# What the breaches import must exist.
IMPORTED = (
    "clusterops/kube/client.py",
    "clusterops/apiserver/b.py",
    "clusterops/queueing/b.py",
    "clusterops/operator/b.py",
    "clusterops/core/d.py",
    "clusterops/cli/main.py",
    "clusterops/api/b.py",
)


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LINT, str(ROOT / ".importlinter")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def contract_names() -> dict[str, str]:
    """Contract id to the sentence it is reported by."""
    lines = (ROOT / ".importlinter").read_text(encoding="utf-8").splitlines()
    found = {}
    for number, line in enumerate(lines):
        if line.startswith("[importlinter:contract:"):
            found[line.split(":")[2].rstrip("]")] = lines[number + 1].removeprefix("name = ")
    return found


def test_the_rooms_import_what_they_may() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_contract_notices_its_breach(tmp_path: Path) -> None:
    """In a tree of the same rooms where each contract is broken once, all are reported broken."""
    text = (ROOT / ".importlinter").read_text(encoding="utf-8")
    named = re.findall(
        r"^    ((?:clusterops\.\w+|health|rlhf)(?:\.\w+)+)$", text, flags=re.MULTILINE
    )
    files = dict.fromkeys((*IMPORTED, *(f"{name.replace('.', '/')}.py" for name in named)), "")
    for path, line in BREACHES.values():
        files[path] = f"{files.get(path, '')}{line}\n"
    # Two modules of one package that import each other.
    files["clusterops/kube/ring_a.py"] = "import clusterops.kube.ring_b\n"
    files["clusterops/kube/ring_b.py"] = "import clusterops.kube.ring_a\n"
    for path, text in files.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        for folder in target.relative_to(tmp_path).parents:
            if folder != Path():
                (tmp_path / folder / "__init__.py").touch()
    report = lint(tmp_path).stdout
    names = contract_names()
    assert sorted(names) == sorted([*BREACHES, "no-cycles-in-clusterops"])
    kept = [identity for identity, name in names.items() if f"{name} BROKEN" not in report]
    assert kept == [], report


def test_ray_is_imported_in_one_module_alone() -> None:
    ray = re.compile(r"^\s*(?:import|from) ray\b", re.MULTILINE)
    importing = [
        source.path for source in python_sources() if source.in_package and ray.search(source.text)
    ]
    assert len(importing) <= 1, importing
