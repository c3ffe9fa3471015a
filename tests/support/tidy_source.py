"""The repository as text and syntax trees, for the checks of its style."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("clusterops", "health", "rlhf")
PURE_ROOMS = ("clusterops/api/", "clusterops/core/", "clusterops/scheduling/")
TEXT_SUFFIXES = (
    ".py",
    ".toml",
    ".yaml",
    ".yml",
    ".md",
    ".txt",
    ".json",
    ".sh",
    ".html",
    ".js",
    ".css",
)
SKIPPED_FOLDERS = ("build", "dist", "node_modules", "__pycache__")


@dataclass(frozen=True)
class Finding:
    """One breach of a rule. `subject` names what breaks it within the file, empty for the file."""

    path: str
    line: int
    message: str
    subject: str = ""
    size: int = 0

    @property
    def key(self) -> str:
        """How the list of exceptions names it: `clusterops/a.py` or `clusterops/a.py::Class.method`."""
        return f"{self.path}::{self.subject}" if self.subject else self.path

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.key}]"


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the repository and decides which rules are stricter."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def in_package(self) -> bool:
        return self.path.split("/")[0] in PACKAGES

    @property
    def pure(self) -> bool:
        return self.path.startswith(PURE_ROOMS)

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Line and text of every comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [
            (token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT
        ]

    @cached_property
    def named(self) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
        """Every function and class with its qualified name, outer before inner."""
        return list(_named(self.tree, ""))

    def subject_at(self, line: int) -> str:
        """The qualified name of the innermost function or class around a line."""
        around = [
            name for name, node in self.named if node.lineno <= line <= (node.end_lineno or 0)
        ]
        return around[-1] if around else ""

    def finding(self, node: ast.AST, message: str) -> Finding:
        """A breach at a node, named by the function around it."""
        line = getattr(node, "lineno", 1)
        return Finding(self.path, line, message, self.subject_at(line))


def _named(
    parent: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from _named(child, f"{name}.")
        else:
            yield from _named(child, prefix)


@cache
def python_sources() -> list[Source]:
    """Every Python file of the packages and the tests, parsed once for all rules."""
    return [
        Source(path, (ROOT / path).read_text(encoding="utf-8"))
        for path in repository_files()
        if path.endswith(".py") and path.split("/")[0] in (*PACKAGES, "tests")
    ]


@cache
def repository_files() -> list[str]:
    """Every text file of the repository, relative, without build products and hidden caches."""
    found = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(
            part.startswith(".") and part not in (".ci", ".importlinter") for part in parts
        )
        if hidden or any(part in SKIPPED_FOLDERS for part in parts) or not path.is_file():
            continue
        if path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", ".importlinter", "run"):
            found.append("/".join(parts))
    return found


def dotted(node: ast.AST) -> str:
    """`time.sleep` for the expression of that name, empty for anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def docstring_nodes(tree: ast.Module) -> list[int]:
    """The ids of the constants that are docstrings, those of attributes included."""
    found = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            found += [
                id(statement.value)
                for statement in body
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ]
    return found
