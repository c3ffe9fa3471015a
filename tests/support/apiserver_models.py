"""Makes `clusterops/apiserver/builtin_types.json` from the models of the `kubernetes` package.

Only names and types are taken. Run `python tests/support/apiserver_models.py` after an update of
the package; a test compares the file with what this makes.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
from kubernetes.client import models

TARGET = Path(__file__).parents[2] / "clusterops" / "apiserver" / "builtin_types.json"

ROOTS = (
    "V1Namespace",
    "V1Pod",
    "V1Node",
    "CoreV1Event",
    "V1ConfigMap",
    "V1Secret",
    "V1Service",
    "V1ServiceAccount",
    "V1Binding",
    "V1Eviction",
    "V1Lease",
    "V1CustomResourceDefinition",
    "V1SelfSubjectReview",
    "V1SelfSubjectAccessReview",
    "V1SubjectAccessReview",
    "V1TokenReview",
)
# ObjectMeta and what belongs to it is written by hand, for all kinds alike.
BY_HAND = {"V1ObjectMeta", "V1OwnerReference", "V1ManagedFieldsEntry"}
SCALARS = {
    "str": "string",
    "int": "integer",
    "bool": "boolean",
    "float": "number",
    "datetime": "time",
    "bytes": "bytes",
    "bytearray": "bytes",
    "object": "any",
}
QUANTITIES = {
    "limits", "requests", "capacity", "allocatable", "overhead", "sizeLimit", "divisor",
    "allocatedResources", "consumedCapacity",
}  # fmt: skip
INT_OR_STRING = {
    ("HTTPGetAction", "port"),
    ("TCPSocketAction", "port"),
    ("ServicePort", "targetPort"),
}
# JSONSchemaProps holds itself in places that the models call "object".
RECURSIVE = {("JSONSchemaProps", "items"): "JSONSchemaProps"}


def short(model: str) -> str:
    """`V1PodSpec` -> `PodSpec`, `CoreV1Event` -> `Event`."""
    return re.sub(r"^(Core|Events|Discovery)?V1", "", model)


def field_type(model: str, name: str, declared: str, queue: list[str]) -> str:
    """One type as the file spells it; models met on the way are put into `queue`."""
    if (match := re.fullmatch(r"List\[(.+)\]", declared)) is not None:
        return "[" + field_type(model, name, match.group(1), queue)
    if (match := re.fullmatch(r"Dict\[str, (.+)\]", declared)) is not None:
        return "{" + field_type(model, name, match.group(1), queue)
    if (model, name) in RECURSIVE:
        return RECURSIVE[model, name]
    if (model, name) in INT_OR_STRING:
        return "int-or-string"
    if declared == "str" and name in QUANTITIES:
        return "quantity"
    if declared in SCALARS:
        return SCALARS[declared]
    queue.append(declared)
    return short(declared)


def generate() -> bytes:
    """The content of the file: for each type its fields, a required one marked by `!`."""
    queue, types = list(ROOTS), {}
    while queue:
        model = queue.pop()
        if short(model) in types or model in BY_HAND:
            continue
        types[short(model)] = fields = {}
        cls: Any = getattr(models, model)
        required = {n for n, f in cls.model_fields.items() if f.is_required()}
        for attribute, declared in cls.openapi_types.items():
            name = cls.attribute_map[attribute]
            kind = field_type(short(model), name, declared, queue)
            # Every object may lack its metadata until the server fills it in.
            must = attribute in required and name != "metadata"
            fields[name] = kind + ("!" if must else "")
    lines = [
        f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(types[name], order='sorted').decode()}"
        for name in sorted(types)
    ]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


if __name__ == "__main__":
    TARGET.write_bytes(generate())
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
