"""The schema of a kind, compiled once: prune, default and validate plain dicts in place.

Metadata is the server's own: whatever a CRD says about it, ObjectMeta is what is enforced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusterops.apiserver.causes import Cause
from clusterops.apiserver.constraints import Findings
from clusterops.apiserver.metadata import METADATA_DEFINITIONS, SUBDOMAIN, validate_metadata
from clusterops.apiserver.pruning import DefaultCompiler, PruneCompiler
from clusterops.apiserver.rules import RuleCompiler
from clusterops.apiserver.structure import MISSING, Node, build
from clusterops.apiserver.validation import CheckCompiler

Finish = Callable[[dict[str, Any]], None]
Extra = Callable[[dict[str, Any], "dict[str, Any] | None"], "list[Cause]"]

_TYPE_META = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"$ref": "#/components/schemas/ObjectMeta"},
}


class Schema:
    """A structural schema of whole objects, `metadata` included.

    `raw` is an OpenAPI schema (of a CRD version, or of a built-in kind with `definitions` for its
    references). `finish` fills in defaults that depend on other fields, `extra` finds what a
    schema cannot say; both are for built-in kinds. `name_rule` is one of metadata's rules.
    Raises CelError for a rule that cannot be served, re.error for a bad pattern.
    """

    def __init__(
        self,
        raw: dict[str, Any],
        definitions: dict[str, dict[str, Any]] | None = None,
        *,
        name_rule: str = SUBDOMAIN,
        finish: Finish | None = None,
        extra: Extra | None = None,
    ) -> None:
        whole = {**raw, "type": "object"}
        whole["properties"] = {**raw.get("properties", {}), **_TYPE_META}
        self.raw = whole
        self.definitions = {**METADATA_DEFINITIONS, **(definitions or {})}
        self.root: Node = build(whole, self.definitions)
        self._prune = PruneCompiler().compile(self.root)
        self._default = DefaultCompiler().compile(self.root)
        compiler = CheckCompiler()
        self._check = compiler.compile(self.root)
        self._check_whole, self._check_fields = compiler.compile_apart(self.root)
        self._rules = RuleCompiler().compile(self.root)
        self._name_rule = name_rule
        self._finish = finish
        self._extra = extra

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove unknown fields; their paths as Kubernetes words them (`spec.tasks[0].x`)."""
        unknown = self._prune(obj) if self._prune is not None else None
        return [path.removeprefix(".") for path in unknown] if unknown else []

    def default(self, obj: dict[str, Any]) -> None:
        """Drop nulls that the schema does not allow, then fill in defaults."""
        if self._default is not None:
            self._default(obj)
        if self._finish is not None:
            self._finish(obj)

    def validate(
        self, obj: dict[str, Any], old: dict[str, Any] | None = None, *, old_is_valid: bool = False
    ) -> list[Cause]:
        """Everything wrong with `obj`; rules on transitions see `old`. Empty when valid.

        With `old_is_valid`, `old` passed this schema as it is: parts of it that are in `obj`
        themselves, not as copies, are not checked again. A built-in kind answers 400 instead of 422
        when a cause is TYPE_INVALID.
        """
        known = old if old_is_valid and old is not None else {}
        meta, known_meta = obj.get("metadata") or {}, known.get("metadata") or {}
        found = self._findings(obj, known)
        causes = [make(path.removeprefix(".")) for path, make in found] if found else []
        if any(cause.field.startswith("metadata") for cause in causes):
            return causes
        causes += validate_metadata(meta, self._name_rule, known=known_meta)
        if found:
            return causes  # what follows relies on valid types
        if self._extra is not None:
            causes += self._extra(obj, old)
        if self._rules is not None and not causes:
            causes += self._rules(obj, MISSING if old is None else old, "")
        return causes

    def _findings(self, obj: dict[str, Any], known: dict[str, Any]) -> Findings:
        """What the schema finds, in fields that are not `known` to be valid."""
        if self._check is None:
            return None
        if not known:
            return self._check(obj)
        found = self._check_whole(obj) if self._check_whole is not None else None
        changed = _not_shared(obj, known)
        meta, known_meta = changed.get("metadata"), known.get("metadata")
        if type(meta) is dict and type(known_meta) is dict:
            changed["metadata"] = _not_shared(meta, known_meta)
        more = self._check_fields(changed) if self._check_fields is not None else None
        return [*(found or ()), *(more or ())] or None


def _not_shared(obj: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The fields of `obj` that are not the very same objects in `known`.

    Equality would not do: 1, 1.0 and true are equal.
    """
    return {name: value for name, value in obj.items() if known.get(name) is not value}
