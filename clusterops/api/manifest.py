"""Manifests: files of one or several objects, checked whole, every problem with its line.

`read` gives the objects of a file or refuses the file with all its problems at once; so nothing is
ever half created because the third object had a typing error. Text comes in, values come out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from clusterops.api.crd import KUEUE, OURS
from clusterops.api.names import ResourceType
from clusterops.api.spelling import closest
from clusterops.api.text import listed, printable
from clusterops.api.validation import Problem, problems
from clusterops.api.wire import Path
from clusterops.api.yaml_source import Document, Mark, documents

KNOWN_KINDS = {definition.resource.kind: definition for definition in (*OURS, *KUEUE)}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file. `resource` is None for a kind that is not checked here."""

    value: dict[str, Any]
    resource: ResourceType | None
    source: str
    line: int

    @property
    def name(self) -> str:
        """`TrainingJob/llm-7b`, for messages."""
        metadata = self.value.get("metadata", {})
        return f"{self.value['kind']}/{metadata.get('name') or metadata.get('generateName', '')}"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One problem at its place in a file. `excerpt` is the line of the file, made printable."""

    source: str
    mark: Mark
    problem: Problem
    excerpt: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.mark.line}: {self.problem}"

    def pointed(self) -> str:
        """The complaint with the line of the file and a caret below the place."""
        if not self.excerpt:
            return str(self)
        gutter = f"{self.mark.line:>5} | "
        caret = " " * (len(gutter) - 2) + "| " + " " * (self.mark.column - 1) + "^"
        return f"{self}\n{gutter}{self.excerpt}\n{caret}"


class ManifestError(ValueError):
    """A file that cannot be used; `complaints` are all its problems in the order of its lines."""

    def __init__(self, complaints: Iterable[Complaint]) -> None:
        self.complaints = tuple(complaints)
        super().__init__("\n".join(map(str, self.complaints)))


def read(text: str, source: str) -> tuple[Manifest, ...]:
    """The objects of a YAML or JSON text, each one valid. `source` is its name in messages.

    Raises:
        ManifestError: the text is broken, too large, or holds an object that breaks a rule.
    """
    source = printable(source)
    lines = text.splitlines()
    found: list[Manifest] = []
    complaints: list[Complaint] = []

    def complain(mark: Mark, problem: Problem) -> None:
        excerpt = printable(lines[mark.line - 1]) if mark.line <= len(lines) else ""
        complaints.append(Complaint(source, mark, problem, excerpt[:160]))

    for document in documents(text):
        for flaw in document.flaws:
            complain(flaw.mark, Problem(flaw.path, "yaml", flaw.message))
        if document.value is None and document.flaws:
            continue
        for path, value in _objects(document.value):
            wrong, resource = _check(value)
            for problem in wrong:
                complain(_place(document, (*path, *problem.path), problem), problem)
            if not wrong:
                found.append(Manifest(value, resource, source, document.mark_of(path).line))
    for manifest, first in _repeated(found):
        again = Problem(
            ("metadata", "name"), "repeated", f"{manifest.name} is already in line {first.line}"
        )
        complain(Mark(manifest.line, 1), again)
    if not found and not complaints:
        complain(Mark(1, 1), Problem((), "empty", "holds no object"))
    if complaints:
        raise ManifestError(sorted(complaints, key=lambda complaint: complaint.mark))
    return tuple(found)


def _objects(value: Any) -> Iterator[tuple[Path, Any]]:
    """The objects of a document: itself, or the items of a List."""
    if (
        isinstance(value, dict)
        and value.get("kind") == "List"
        and isinstance(value.get("items"), list)
    ):
        for position, item in enumerate(value["items"]):
            yield ("items", position), item
    else:
        yield (), value


def _check(value: Any) -> tuple[tuple[Problem, ...], ResourceType | None]:
    if not isinstance(value, dict):
        return (Problem((), "type", "must be an object with apiVersion, kind and metadata"),), None
    version, kind = value.get("apiVersion"), value.get("kind")
    for field, given in (("apiVersion", version), ("kind", kind)):
        if not isinstance(given, str) or not given:
            return (Problem((field,), "required", "is required"),), None
    definition = KNOWN_KINDS.get(str(kind))
    groups = [known.resource.group for known in KNOWN_KINDS.values()]
    if str(version).split("/")[0] not in groups:
        if definition is not None and closest(str(version), [definition.resource.api_version]):
            wanted = definition.resource.api_version
            return (Problem(("apiVersion",), "choice", f"must be {wanted} for a {kind}"),), None
        return _metadata_problems(value), None
    if definition is None:
        meant = closest(str(kind), list(KNOWN_KINDS))
        known = listed(KNOWN_KINDS)
        return (Problem(("kind",), "choice", f"must be {known}", meant),), None
    return problems(definition.model, value), definition.resource


def _metadata_problems(value: dict[str, Any]) -> tuple[Problem, ...]:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return (Problem(("metadata",), "required", "is required"),)
    if not metadata.get("name") and not metadata.get("generateName"):
        return (Problem(("metadata", "name"), "required", "is required"),)
    return ()


def _place(document: Document, path: Path, problem: Problem) -> Mark:
    """The line to point at: the field's own, or the one of the object that lacks it."""
    return document.mark_of(path[:-1] if problem.rule == "required" and path else path)


def _repeated(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    first: dict[tuple[str, ...], Manifest] = {}
    for manifest in manifests:
        metadata = manifest.value.get("metadata", {})
        if not metadata.get("name"):
            continue
        key = (manifest.value["apiVersion"], manifest.name, metadata.get("namespace") or "")
        if key in first:
            yield manifest, first[key]
        first.setdefault(key, manifest)
