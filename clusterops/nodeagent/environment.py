"""The environment of a container: what the pod declares, and six variables of the machine's.

Pure. Nothing of the agent's own environment gets in by accident: the base is built from named
variables only.
"""

import base64
import binascii
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterops.nodeagent import downward
from clusterops.nodeagent.downward import ConfigError, Pod, Surroundings

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

Reference = tuple[str, str]
"""("Secret" | "ConfigMap", name), in the pod's namespace."""


@dataclass(frozen=True, slots=True)
class References:
    """The Secrets and ConfigMaps a pod refers to, as fetched; None = does not exist."""

    objects: Mapping[Reference, Mapping[str, Any] | None] = field(default_factory=dict)

    def values(self, reference: Reference, *, optional: bool) -> Mapping[str, bytes]:
        """All keys of one object, decoded; empty when it is optional and missing.

        Raises:
            ConfigError: it does not exist, or a value of it cannot be decoded.
        """
        kind, name = reference
        found = self.objects.get(reference)
        if found is None:
            if optional:
                return {}
            raise ConfigError(f"{kind.lower()} {name!r} not found")
        try:
            return decode(kind, found)
        except ValueError as error:
            raise ConfigError(f"{kind.lower()} {name!r}: {error}") from error


def decode(kind: str, found: Mapping[str, Any]) -> dict[str, bytes]:
    """The keys of a Secret or ConfigMap with their contents. Raises ValueError naming a bad key."""
    text: Mapping[str, str] = found.get("data") or {}
    binary: Mapping[str, str] = found.get("binaryData") or {}
    if kind == "Secret":
        text, binary = {}, text
    decoded = {key: value.encode() for key, value in text.items()}
    for key, value in binary.items():
        try:
            decoded[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"key {key!r} is not base64") from error
    return decoded


def base(agent: Mapping[str, str], *, tmp: Path, prefix: str, base_prefix: str) -> dict[str, str]:
    """PATH, HOME, LANG, TMPDIR and VIRTUAL_ENV for a container.

    `agent` is the agent's environment, of which only PATH, HOME and LANG are looked at; `prefix`
    and `base_prefix` are those of `sys`: they differ in a virtual environment, whose programs then
    come first, so that `python` in a pod is the Python that has clusterops.
    """
    path = agent.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    variables = {
        "PATH": path,
        "HOME": agent.get("HOME") or "/",
        "LANG": agent.get("LANG") or "C.UTF-8",
        "TMPDIR": str(tmp),
    }
    if prefix != base_prefix:
        programs = str(Path(prefix) / "bin")
        if path.split(":")[0] != programs:
            variables["PATH"] = f"{programs}:{path}"
        variables["VIRTUAL_ENV"] = prefix
    return variables


def base_of_this_process(agent: Mapping[str, str], tmp: Path) -> dict[str, str]:
    """`base` for the interpreter that runs the agent."""
    return base(agent, tmp=tmp, prefix=sys.prefix, base_prefix=sys.base_prefix)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by the variable's value, as Kubernetes does.

    An unknown name stays as it stands, `$$` is a dollar, so `$$(NAME)` is the text `$(NAME)`.
    """
    pieces: list[str] = []
    position = 0
    while True:
        dollar = text.find("$", position)
        if dollar < 0 or dollar + 1 == len(text):
            pieces.append(text[position:])
            return "".join(pieces)
        pieces.append(text[position:dollar])
        following = text[dollar + 1]
        if following == "$":
            pieces.append("$")
            position = dollar + 2
        elif following == "(" and (end := text.find(")", dollar + 2)) >= 0:
            name = text[dollar + 2 : end]
            pieces.append(variables.get(name, f"$({name})"))
            position = end + 1
        else:
            pieces.append("$" + following)
            position = dollar + 2


def declared(
    pod: Pod, container: Mapping[str, Any], references: References, around: Surroundings
) -> dict[str, str]:
    """The variables a container declares: envFrom first, then env in order, each may use earlier ones.

    Raises:
        ConfigError: an object, key or field that is not optional is missing.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        variables.update(_from_source(source, references))
    for entry in container.get("env") or ():
        name = entry["name"]
        if entry.get("valueFrom"):
            value = _value_from(pod, container, entry, references, around)
            if value is None:
                continue
        else:
            value = expand(str(entry.get("value") or ""), variables)
        variables[name] = value
    return variables


def _from_source(source: Mapping[str, Any], references: References) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    found: dict[str, str] = {}
    for kind, key in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
        reference = source.get(key)
        if not reference:
            continue
        values = references.values(
            (kind, reference["name"]), optional=bool(reference.get("optional"))
        )
        for name, value in values.items():
            found[prefix + name] = _text(value, f"{kind.lower()} {reference['name']!r}", name)
    # A key that cannot be a variable's name is passed over, as Kubernetes does.
    return {name: value for name, value in found.items() if name and "=" not in name}


def _value_from(
    pod: Pod,
    container: Mapping[str, Any],
    entry: Mapping[str, Any],
    references: References,
    around: Surroundings,
) -> str | None:
    source = entry["valueFrom"]
    if source.get("fieldRef"):
        return downward.field(pod, str(source["fieldRef"].get("fieldPath", "")), around)
    if source.get("resourceFieldRef"):
        return downward.resource(pod, container["name"], source["resourceFieldRef"], around)
    for kind, key_ref in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        reference = source.get(key_ref)
        if not reference:
            continue
        optional = bool(reference.get("optional"))
        name, key = reference["name"], reference["key"]
        value = references.values((kind, name), optional=optional).get(key)
        if value is not None:
            return _text(value, f"{kind.lower()} {name!r}", key)
        if optional:
            return None
        raise ConfigError(f"couldn't find key {key!r} in {kind.lower()} {name!r}")
    raise ConfigError(f"env {entry['name']!r}: valueFrom names no source that is supported here")


def _text(value: bytes, owner: str, key: str) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"key {key!r} of {owner} is not text: mount it as a file") from error
    if "\0" in text:
        raise ConfigError(f"key {key!r} of {owner} holds a NUL: mount it as a file")
    return text
