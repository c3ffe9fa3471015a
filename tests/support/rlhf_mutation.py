"""Removes a named check from a copy of the source, by its syntax tree."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Check(NamedTuple):
    """A statement that must be there: in which file and function, and what its source says.

    `instead` replaces it; by default it is removed. `tests` must fail without it.
    """

    name: str
    file: str
    function: str
    says: str
    tests: str
    instead: str = "pass"


class NotFound(LookupError):
    """The check is not in the source (any more), or more than once."""


def copy_without(check: Check, root: Path, target: Path) -> None:
    """Copies package and tests, and removes the check from the copy."""
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "rlhf", target / "rlhf", ignore=skipped)
    shutil.copytree(root / "tests" / "support", target / "tests" / "support", ignore=skipped)
    for name in (check.tests.split("::")[0], "tests/conftest.py"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, target / name)
    shutil.copy(root / "pyproject.toml", target / "pyproject.toml")
    path = target / check.file
    path.write_text(without(path.read_text(encoding="utf-8"), check), encoding="utf-8")


_UNNEEDED = [
    word for name in ("hypothesispytest", "xdist", "anyio") for word in ("-p", f"no:{name}")
]
"""Plugins that would only cost time."""


def outcome_of(check: Check, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the check's tests in a copy, up to the first that fails."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", check.tests, "-x", "-q", "--timeout", "30", *_UNNEEDED],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def without(source: str, check: Check) -> str:
    """The source without the check.

    Raises:
        NotFound: there is not exactly one such statement.
    """
    tree = ast.parse(source)
    remover = _Remover(check)
    changed = ast.fix_missing_locations(remover.visit(tree))
    if remover.removed != 1:
        raise NotFound(
            f"{check.name}: {remover.removed} statements in {check.file}:{check.function} say "
            f"{check.says!r}"
        )
    return ast.unparse(changed)


class _Remover(ast.NodeTransformer):
    def __init__(self, check: Check) -> None:
        self.check = check
        self.removed = 0
        self._inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        before = self._inside
        self._inside = before or node.name == self.check.function
        self.generic_visit(node)
        self._inside = before
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_FunctionDef(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if self._inside and self.check.says in ast.unparse(node.test):
            self.removed += 1
            return self._instead()
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if self._inside and self.check.says in ast.unparse(node):
            self.removed += 1
            return self._instead()
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if self._inside and self.check.says in ast.unparse(node):
            self.removed += 1
            return self._instead()
        return node

    def _instead(self) -> ast.stmt:
        return ast.parse(self.check.instead).body[0]
