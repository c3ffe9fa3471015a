"""CustomResourceDefinitions from the models, so that what is documented is what is enforced.

pydantic writes JSON Schema; apiextensions/v1 wants a structural OpenAPI v3 schema, which differs
just enough to be refused: numeric exclusive bounds, null as a type, const, references. This module
is the translation, and the place where columns, short names and CEL rules of our kinds are said.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from clusterops.api import kueue, names
from clusterops.api.names import ResourceType
from clusterops.api.node_health import NodeHealth
from clusterops.api.structural import PRESERVE, violations
from clusterops.api.training_job import ATTEMPT_DIGITS, MAX_POD_NAME, TrainingJob
from clusterops.api.wire import WireModel

_DROPPED = ("title", "$defs", "examples", "discriminator")
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


class Column(NamedTuple):
    """One column of `kubectl get`. `wide` = only with -o wide."""

    name: str
    type: str
    path: str
    description: str = ""
    wide: bool = False


class Rule(NamedTuple):
    """A CEL rule on the object at `place` (field names from the root)."""

    place: tuple[str, ...]
    rule: str
    message: str


class KindDefinition(NamedTuple):
    """All that a CRD says about one kind."""

    resource: ResourceType
    model: type[WireModel]
    columns: tuple[Column, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = True
    rules: tuple[Rule, ...] = ()


_AGE = Column("Age", "date", ".metadata.creationTimestamp", "Time since its creation")

TRAINING_JOB = KindDefinition(
    names.TRAINING_JOBS,
    TrainingJob,
    columns=(
        Column("Queue", "string", ".spec.queueName", "The LocalQueue it waits in"),
        Column("Priority", "string", ".spec.priorityClassName", "Its priority class"),
        Column("GPUs", "integer", ".status.gpus", "GPUs asked for, or held"),
        Column("Phase", "string", ".status.phase", "Where it is in its life"),
        Column("Reason", "string", ".status.reason", "Why it waits, or why it ended"),
        Column("Step", "integer", ".status.progress.step", "Completed steps"),
        Column("Attempts", "integer", ".status.attempt", "How often it was started"),
        _AGE,
        Column("Message", "string", ".status.message", "The reason in words", wide=True),
        Column("Durable", "integer", ".status.progress.durableStep", "Saved up to", wide=True),
        Column("Preemptions", "integer", ".status.counts.preemptions", "How often", wide=True),
        Column("Lost", "integer", ".status.counts.lostSteps", "Steps done twice", wide=True),
    ),
    short_names=("tj",),
    categories=("all", "clusterops"),
    rules=(
        Rule(
            (),
            "!has(self.metadata.name) || size(self.metadata.name) + "
            "size(string(self.spec.replicas - 1)) <= "
            f"{MAX_POD_NAME - len('--') - ATTEMPT_DIGITS}",
            "metadata.name: is too long, since pods are named JOB-ATTEMPT-RANK and a pod's name "
            f"has at most {MAX_POD_NAME} characters",
        ),
        Rule(
            (),
            "!has(self.metadata.name) || self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            'metadata.name: must begin with a letter and hold no "."',
        ),
        Rule(
            ("spec",),
            "!has(self.minReplicas) || self.minReplicas <= self.replicas",
            "minReplicas: must be at most replicas",
        ),
    ),
)

NODE_HEALTH = KindDefinition(
    names.NODE_HEALTHS,
    NodeHealth,
    columns=(
        Column("Verdict", "string", ".status.verdict", "What should happen to it"),
        Column("Since", "date", ".status.since", "Time since the verdict changed"),
        Column("Action", "string", ".spec.remediation.rung", "The action under way"),
        Column("State", "string", ".spec.remediation.state", "How far the action is"),
        _AGE,
        Column("Ticket", "string", ".spec.remediation.ticket", "The vendor's ticket", wide=True),
        Column("Message", "string", ".status.message", "The verdict in words", wide=True),
    ),
    short_names=("nh",),
    categories=("clusterops",),
)

_COHORT_COLUMN = Column("Cohort", "string", ".spec.cohortName", "The cohort it belongs to")
_PENDING = Column("Pending Workloads", "integer", ".status.pendingWorkloads", "Waiting jobs")
_ADMITTED = Column("Admitted Workloads", "integer", ".status.admittedWorkloads", "Running jobs")


def _condition(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


OURS = (TRAINING_JOB, NODE_HEALTH)
KUEUE = (
    KindDefinition(
        names.WORKLOADS,
        kueue.Workload,
        columns=(
            Column("Queue", "string", ".spec.queueName", "The LocalQueue it waits in"),
            Column("Reserved in", "string", ".status.admission.clusterQueue", "Where it has quota"),
            Column("Admitted", "string", _condition("Admitted"), "Whether it may run"),
            Column("Finished", "string", _condition("Finished"), "Whether it has ended"),
            _AGE,
        ),
        short_names=("wl",),
    ),
    KindDefinition(
        names.CLUSTER_QUEUES,
        kueue.ClusterQueue,
        columns=(
            _COHORT_COLUMN,
            Column("Strategy", "string", ".spec.queueingStrategy", "Order of the queue", wide=True),
            _PENDING,
            _ADMITTED._replace(wide=True),
        ),
        short_names=("cq",),
    ),
    KindDefinition(
        names.LOCAL_QUEUES,
        kueue.LocalQueue,
        columns=(
            Column("ClusterQueue", "string", ".spec.clusterQueue", "Where its quota comes from"),
            _PENDING,
            _ADMITTED,
        ),
        short_names=("queue", "queues", "lq"),
    ),
    KindDefinition(names.COHORTS, kueue.Cohort, columns=()),
    KindDefinition(
        names.RESOURCE_FLAVORS,
        kueue.ResourceFlavor,
        columns=(),
        short_names=("flavor", "flavors", "rf"),
        status=False,
    ),
    KindDefinition(
        names.WORKLOAD_PRIORITY_CLASSES,
        kueue.WorkloadPriorityClass,
        columns=(Column("Value", "integer", ".value", "The priority"),),
        status=False,
    ),
    KindDefinition(names.TOPOLOGIES, kueue.Topology, columns=(), status=False),
    KindDefinition(names.ADMISSION_CHECKS, kueue.AdmissionCheck, columns=()),
)


def embedded_crds() -> tuple[dict[str, Any], ...]:
    """The definitions that the embedded API server starts with: ours, then Kueue's kinds."""
    return tuple(definition(kind) for kind in (*OURS, *KUEUE))


def definition(kind: KindDefinition) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind.

    Raises:
        ValueError: the model gives a schema that is not structural; each violation is named.
    """
    resource = kind.resource
    schema = structural_schema(kind.model)
    for rule in kind.rules:
        _at(schema, rule.place).setdefault("x-kubernetes-validations", []).append(
            {"rule": rule.rule, "message": rule.message}
        )
    broken = violations(schema)
    if broken:
        raise ValueError(
            f"the schema of {resource.kind} is not structural: {'; '.join(map(str, broken))}"
        )
    version: dict[str, Any] = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    if kind.status:
        version["subresources"] = {"status": {}}
    if kind.columns:
        version["additionalPrinterColumns"] = [_printer_column(column) for column in kind.columns]
    plural, singular = resource.plural, resource.kind.lower()
    spoken: dict[str, Any] = {"kind": resource.kind, "listKind": f"{resource.kind}List"}
    spoken |= {"plural": plural, "singular": singular}
    if kind.short_names:
        spoken["shortNames"] = list(kind.short_names)
    if kind.categories:
        spoken["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": spoken,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def structural_schema(model: type[WireModel]) -> dict[str, Any]:
    """The structural OpenAPI v3 schema of a whole object."""
    source = model.model_json_schema(by_alias=True, mode="validation")
    schema = _translate(source, source.get("$defs", {}))
    # The API server knows these three; a CRD may not say more about them than their type.
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    schema["required"] = [
        name for name in schema.get("required", ()) if name == "spec" or name == "value"
    ]
    if not schema["required"]:
        del schema["required"]
    return schema


def render(crd: Mapping[str, Any]) -> str:
    """The definition as a YAML file."""
    body = yaml.safe_dump(crd, sort_keys=False, width=100, allow_unicode=True)
    return f"# Generated from clusterops/api by python -m clusterops.cli.generate_crds; do not edit.\n{body}"


def file_name(crd: Mapping[str, Any]) -> str:
    """The name of a definition's file: `clusterops.io_trainingjobs.yaml`."""
    return f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml"


def _translate(source: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One node of pydantic's JSON Schema as a node of a structural schema."""
    if "$ref" in source:
        # A field's own description and default win over those of the type it refers to.
        own = {key: value for key, value in source.items() if key != "$ref"}
        return _translate({**definitions[source["$ref"].rsplit("/", 1)[1]], **own}, definitions)
    node = {key: value for key, value in source.items() if key not in _DROPPED}
    _inline_union(node, definitions)
    for exclusive, bound in _EXCLUSIVE.items():
        if exclusive in node and not isinstance(node[exclusive], bool):
            node[bound], node[exclusive] = node[exclusive], True
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "default" in node:
        default = _without_nulls(node.pop("default"))
        if default not in (None, [], ""):
            node["default"] = default
    _open_object(node, definitions)
    if "properties" in node:
        node["properties"] = {
            name: _translate(child, definitions) for name, child in node["properties"].items()
        }
    if "items" in node:
        node["items"] = _translate(node["items"], definitions)
    if "enum" in node:
        # A real API server matches null against the enum and refuses it; without `nullable` it
        # drops a null before it looks.
        node.pop("nullable", None)
    return {key: node[key] for key in sorted(node, key=_reading_order)}


def _reading_order(key: str) -> int:
    """What a reader of the schema wants to see first stays above what may be long."""
    first, last = ("description", "type", "nullable", "default"), ("properties", "items")
    return (
        first.index(key) - len(first) if key in first else last.index(key) + 1 if key in last else 0
    )


def _without_nulls(default: Any) -> Any:
    if isinstance(default, dict):
        return {key: _without_nulls(value) for key, value in default.items() if value is not None}
    return default


def _open_object(node: dict[str, Any], definitions: Mapping[str, Any]) -> None:
    """`additionalProperties` is a schema or nothing; true is the extension, false is pruning."""
    extra = node.get("additionalProperties")
    if isinstance(extra, bool):
        del node["additionalProperties"]
        if extra:
            node[PRESERVE] = True
    elif extra is not None:
        node["additionalProperties"] = _translate(extra, definitions)


def _inline_union(node: dict[str, Any], definitions: Mapping[str, Any]) -> None:
    """`anyOf` of one type and null becomes that type, nullable; several enums become one."""
    branches = node.pop("anyOf", None)
    if branches is None:
        return
    solid = [_translate(branch, definitions) for branch in branches if branch.get("type") != "null"]
    if len(solid) < len(branches):
        node["nullable"] = True
    if len(solid) > 1 and all("enum" in branch for branch in solid):
        merged = [choice for branch in solid for choice in branch["enum"]]
        solid = [{"type": "string", "enum": list(dict.fromkeys(merged))}]
    if len(solid) != 1:
        raise ValueError(f"a union of {len(solid)} types has no structural schema: {branches}")
    for key, value in solid[0].items():
        node.setdefault(key, value)


def _printer_column(column: Column) -> dict[str, Any]:
    printed: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        printed["description"] = column.description
    if column.wide:
        printed["priority"] = 1
    return printed


def _at(schema: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    for name in place:
        schema = schema["properties"][name]
    return schema
