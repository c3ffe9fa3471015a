"""Discovery: what clients ask to learn which kinds there are.

The documents of a set of kinds are made once and answered many times, each with an ETag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from clusterops.apiserver.kind import Kind

JSON = "application/json"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
# Evictions are answered under pods, but belong to this group: kubectl drain looks for it.
_POLICY = ("policy", "v1")
_STATUS_VERBS = ("get", "patch", "update")


class Document(NamedTuple):
    """An answer made once: body, exact content type, ETag (with its quotes)."""

    body: bytes
    content_type: str
    etag: str


class Subresource(NamedTuple):
    """One subresource as discovery describes it."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


def document(content: Any, content_type: str = JSON) -> Document:
    """Encode an answer; its ETag is the hash of its content."""
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return Document(body, content_type, f'"{hashlib.sha256(body).hexdigest().upper()[:32]}"')


def accepted_version(accept: str) -> str:
    """The version of aggregated discovery that `accept` asks for first; empty for the plain form."""
    for entry in accept.split(","):
        parts = [part.strip() for part in entry.split(";")]
        if parts[0] == JSON and "as=APIGroupDiscoveryList" in parts:
            for version in ("v2", "v2beta1"):
                if f"v={version}" in parts:
                    return version
        elif parts[0] in (JSON, "*/*", "application/*"):
            return ""
    return ""


class Discovery:
    """All discovery documents of a set of kinds; made anew when the set changes."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        versions: dict[tuple[str, str], list[Kind]] = {}
        for kind in kinds:
            versions.setdefault((kind.group, kind.version), []).append(kind)
        versions.setdefault(_POLICY, [])
        self._versions = {key: sorted(versions[key], key=lambda k: k.plural) for key in versions}
        self._groups: dict[str, list[str]] = {}
        for group, version in sorted(self._versions):
            self._groups.setdefault(group, []).append(version)
        self._made: dict[tuple[str, ...], Document] = {}

    def core(self, accept: str) -> Document:
        """`/api`: aggregated v2 or v2beta1 when `accept` asks for it, else APIVersions."""
        if version := accepted_version(accept):
            return self._aggregated(version, core=True)
        return self._once(
            ("core",),
            lambda: {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        )

    def groups(self, accept: str) -> Document:
        """`/apis`: aggregated or APIGroupList."""
        if version := accepted_version(accept):
            return self._aggregated(version, core=False)
        named = [group for group in self._groups if group]
        return self._once(
            ("groups",),
            lambda: {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_api_group(group, self._groups[group]) for group in named],
            },
        )

    def group(self, group: str) -> Document | None:
        """`/apis/GROUP`: APIGroup, None when there is no such group."""
        if not group or group not in self._groups:
            return None
        content = {"kind": "APIGroup", "apiVersion": "v1"}
        return self._once(
            ("group", group), lambda: {**content, **_api_group(group, self._groups[group])}
        )

    def resources(self, group: str, version: str) -> Document | None:
        """`/apis/GROUP/VERSION` and `/api/v1` (group ""): APIResourceList."""
        kinds = self._versions.get((group, version))
        if kinds is None:
            return None
        return self._once(
            ("resources", group, version),
            lambda: {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{group}/{version}" if group else version,
                "resources": [entry for kind in kinds for entry in _api_resources(kind)],
            },
        )

    def _aggregated(self, version: str, *, core: bool) -> Document:
        groups = [group for group in self._groups if (group == "") is core]
        return self._once(
            ("aggregated", version, str(core)),
            lambda: {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": [self._group_discovery(group) for group in groups],
            },
            _AGGREGATED.format(version=version),
        )

    def _group_discovery(self, group: str) -> dict[str, Any]:
        return {
            "metadata": {"name": group} if group else {},
            "versions": [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [
                        _resource_discovery(kind) for kind in self._versions[group, version]
                    ],
                }
                for version in self._groups[group]
            ],
        }

    def _once(self, key: tuple[str, ...], make: Any, content_type: str = JSON) -> Document:
        if key not in self._made:
            self._made[key] = document(make(), content_type)
        return self._made[key]


def subresources(kind: Kind) -> list[Subresource]:
    """The subresources of a kind, by name."""
    described = {
        "binding": Subresource("binding", "", "v1", "Binding", ("create",)),
        "eviction": Subresource("eviction", *_POLICY, "Eviction", ("create",)),
        "log": Subresource("log", kind.group, kind.version, kind.kind, ("get",)),
        "status": Subresource("status", kind.group, kind.version, kind.kind, _STATUS_VERBS),
    }
    return [described[name] for name in sorted(kind.subresources)]


def _api_group(group: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _api_resources(kind: Kind) -> list[dict[str, Any]]:
    resource: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    entries = [resource]
    for sub in subresources(kind):
        entry = {
            "name": f"{kind.plural}/{sub.name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": sub.kind,
            "verbs": list(sub.verbs),
        }
        if (sub.group, sub.version) != (kind.group, kind.version):
            entry |= {"group": sub.group, "version": sub.version}
        entries.append(entry)
    return entries


def _resource_discovery(kind: Kind) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    if kind.subresources:
        resource["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in subresources(kind)
        ]
    return resource
