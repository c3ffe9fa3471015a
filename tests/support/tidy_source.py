"""The repository as text and syntax trees, for the checks of its style."""

import ast
import gc
import io
import os
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("clusterops", "health", "rlhf")
PURE_ROOMS = (
    "clusterops/api/",
    "clusterops/core/",
    "clusterops/scheduling/",
    "health/catalogue/",
    "health/fold/",
    "health/judge/",
    "health/parse/",
    "health/policy/",
    "health/verdict/",
    "health/actions.py",
    "health/classify.py",
    "health/events.py",
    "health/explain.py",
    "health/injection.py",
    "health/kmsg_record.py",
    "health/node_status.py",
    "health/nvml_readings.py",
    "health/report.py",
    "health/storms.py",
    "health/timeline.py",
)
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

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The whole tree, walked once for all rules."""
        gc.disable()  # trees are kept to the end: looking for cycles in them is half of the time
        try:
            return list(ast.walk(self.tree))
        finally:
            gc.enable()

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

    def comments_with(self, *words: str) -> list[tuple[int, str]]:
        """Every comment of a file that has one of the words at all: most have none to read."""
        return self.comments if any(word in self.text for word in words) else []

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
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [name for name in inner if name == ".ci" or not name.startswith(".")]
        inner[:] = [name for name in inner if name not in SKIPPED_FOLDERS]
        for name in names:
            if name.startswith(".") and name != ".importlinter":
                continue
            if Path(name).suffix in TEXT_SUFFIXES or name in ("Makefile", ".importlinter", "run"):
                found.append((Path(folder) / name).relative_to(ROOT).as_posix())
    return sorted(found)


def dotted(node: ast.AST) -> str:
    """`time.sleep` for the expression of that name, empty for anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def docstring_nodes(source: Source) -> list[int]:
    """The ids of the constants that are docstrings, those of attributes included."""
    found = []
    for node in source.nodes:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            found += [
                id(statement.value)
                for statement in body
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ]
    return found
