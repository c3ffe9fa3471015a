"""Kinds from CRDs, and the built-in ones with the file they are generated from."""

from typing import NamedTuple

import pytest
from support import apiserver_models
from support.apiserver_kinds import builtin, widget_crd

from clusterops.apiserver.kinds import CrdError, accepted_status, builtin_kinds, kind_from_crd


def schema_of(crd):
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_a_crd_becomes_a_kind():
    kind = kind_from_crd(widget_crd())
    assert (kind.group, kind.version, kind.plural, kind.kind) == (
        "example.io",
        "v1",
        "widgets",
        "Widget",
    )
    assert kind.list_kind == "WidgetList"
    assert kind.short_names == ("wg",)
    assert kind.subresources == {"status"}
    assert [c.name for c in kind.columns] == ["Name", "Size", "Ready", "Owner", "Age"]
    assert kind.root_path == "/apis/example.io/v1"
    assert kind.group_resource == "widgets.example.io"
    assert kind.crd_name == "widgets.example.io"


def test_without_columns_a_kind_shows_name_and_age():
    crd = widget_crd()
    del crd["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c.name for c in kind_from_crd(crd).columns] == ["Name", "Age"]


class Parts(NamedTuple):
    """A CRD, its spec, and the schema of its objects' spec."""

    crd: dict
    spec: dict
    fields: dict


def broken(change):
    crd = widget_crd()
    change(Parts(crd, crd["spec"], schema_of(crd)["properties"]["spec"]))
    return crd


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c.crd["metadata"].update(name="x"), "metadata.name"),
        (lambda c: c.spec.update(group="nodots"), "spec.group"),
        (lambda c: c.spec.update(scope="Both"), "spec.scope"),
        (lambda c: c.spec["versions"][0].update(storage=False), "exactly one version"),
        (lambda c: c.spec["versions"][0].pop("schema"), "schemas are required"),
        (lambda c: c.fields["properties"].update(x={}), "properties[x].type"),
        (
            lambda c: c.fields["properties"].update(x={"$ref": "#/y", "type": "string"}),
            "$ref must not be used",
        ),
        (
            lambda c: c.fields["properties"].update(x={"type": "string", "const": "a"}),
            "const must not be used",
        ),
        (
            lambda c: c.fields["properties"]["size"].update(exclusiveMinimum=3),
            "exclusiveMinimum",
        ),
        (
            lambda c: c.fields["properties"].update(x={"type": "array"}),
            "properties[x].items",
        ),
        (
            lambda c: c.fields["properties"]["size"].update(default="many"),
            "size].default",
        ),
        (
            lambda c: c.fields["properties"]["parts"]["items"].pop("required"),
            "a key must be required or have a default",
        ),
        (
            lambda c: c.fields["properties"]["labels"].update(properties={"a": {"type": "string"}}),
            "mutually exclusive",
        ),
        (
            lambda c: c.fields.update({"x-kubernetes-validations": [{"rule": "self.nope > 1"}]}),
            "undefined field 'nope'",
        ),
        (
            lambda c: c.fields["properties"]["owner"].update(pattern="("),
            "unterminated subpattern",
        ),
        (
            lambda c: c.spec["versions"][0]["additionalPrinterColumns"].append(
                {"name": "x", "type": "string", "jsonPath": "spec"}
            ),
            "must start with a dot",
        ),
        (
            lambda c: c.spec["versions"][0]["additionalPrinterColumns"].append(
                {"name": "x", "type": "text", "jsonPath": ".spec"}
            ),
            "column type 'text'",
        ),
    ],
)  # fmt: skip
def test_a_crd_that_cannot_be_served_is_refused_with_the_reason(change, reason):
    with pytest.raises(CrdError) as caught:
        kind_from_crd(broken(change))
    assert any(reason in text for text in caught.value.reasons), caught.value.reasons
    assert builtin("CustomResourceDefinition").schema.validate(broken(change)) != []


def test_every_reason_is_told_at_once():
    crd = widget_crd()
    crd["spec"]["scope"] = "Both"
    crd["spec"]["group"] = "x"
    with pytest.raises(CrdError) as caught:
        kind_from_crd(crd)
    assert len(caught.value.reasons) == 3  # the name no longer fits the group either


def test_an_accepted_crd_is_established():
    status = accepted_status(widget_crd(), "2026-01-01T00:00:00Z")
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert status["storedVersions"] == ["v1"]


def test_a_crd_is_itself_valid_and_its_schema_is_not_pruned():
    crd = widget_crd()
    schema = builtin("CustomResourceDefinition").schema
    assert schema.prune(crd) == []
    schema.default(crd)
    assert schema.validate(crd) == []
    assert crd["spec"]["names"]["listKind"] == "WidgetList"


def test_the_file_of_built_in_types_is_what_the_models_say():
    assert apiserver_models.TARGET.read_bytes() == apiserver_models.generate()


def test_built_in_kinds_have_what_clients_look_for():
    kinds = {k.kind: k for k in builtin_kinds()}
    assert kinds["Pod"].subresources == {"status", "log", "binding", "eviction"}
    assert kinds["Node"].namespaced is False
    assert not kinds["TokenReview"].stored
    assert kinds["Lease"].api_version == "coordination.k8s.io/v1"
    assert all(kind.description for kind in kinds.values())
