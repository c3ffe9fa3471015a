"""The CRDs: generated, structural, complete, and equal to the committed files."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import Field, StrictInt

from clusterops.api import crd, names
from clusterops.api.structural import violations
from clusterops.api.wire import Quantity, WireModel, map_list
from clusterops.cli import generate_crds

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = {
    definition["spec"]["names"]["kind"]: definition for definition in crd.embedded_crds()
}


def version(kind: str) -> dict:
    return DEFINITIONS[kind]["spec"]["versions"][0]


def schema(kind: str) -> dict:
    return version(kind)["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("kind", list(DEFINITIONS))
def test_every_schema_is_structural(kind: str) -> None:
    assert violations(schema(kind)) == []


def test_the_committed_files_are_what_the_models_give() -> None:
    folder = ROOT / "manifests" / "crd"
    committed = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert committed == generate_crds.files()


def test_the_generator_writes_its_files(tmp_path: Path, capsys) -> None:
    assert generate_crds.main([str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        generate_crds.files()
    )
    assert generate_crds.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_files_list_every_kind_of_ours() -> None:
    files = generate_crds.files()
    listed = yaml.safe_load(files["kustomization.yaml"])["resources"]
    assert listed == ["clusterops.io_trainingjobs.yaml", "clusterops.io_nodehealths.yaml"]
    for name in listed:
        assert yaml.safe_load(files[name])["kind"] == "CustomResourceDefinition"


def test_names_and_scopes_are_the_shared_ones() -> None:
    for resource in (names.TRAINING_JOBS, names.NODE_HEALTHS, names.WORKLOADS, names.COHORTS):
        spec = DEFINITIONS[resource.kind]["spec"]
        assert (spec["group"], spec["names"]["plural"]) == (resource.group, resource.plural)
        assert spec["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
        assert spec["versions"][0]["name"] == resource.version
    assert DEFINITIONS["TrainingJob"]["spec"]["names"]["shortNames"] == ["tj"]
    assert DEFINITIONS["NodeHealth"]["spec"]["names"]["shortNames"] == ["nh"]


def test_the_columns_of_a_job() -> None:
    columns = version("TrainingJob")["additionalPrinterColumns"]
    narrow = [column["name"] for column in columns if not column.get("priority")]
    assert narrow == ["Queue", "Priority", "GPUs", "Phase", "Reason", "Step", "Attempts", "Age"]


@pytest.mark.parametrize("kind", list(DEFINITIONS))
def test_every_column_points_at_a_field_of_the_schema(kind: str) -> None:
    for column in version(kind).get("additionalPrinterColumns", ()):
        path = column["jsonPath"].split("[")[0].lstrip(".").split(".")
        if path[0] == "metadata":
            continue
        node = schema(kind)
        for name in path:
            node = node["properties"][name]


def test_status_is_a_subresource_where_there_is_a_status() -> None:
    for kind in DEFINITIONS:
        assert ("status" in schema(kind)["properties"]) == ("subresources" in version(kind)), kind


def test_conditions_are_a_map_by_type_wherever_they_are() -> None:
    for kind in DEFINITIONS:
        status = schema(kind)["properties"].get("status", {})
        conditions = status.get("properties", {}).get("conditions")
        if conditions is not None:
            assert conditions["x-kubernetes-list-type"] == "map"
            assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_a_bound_that_spans_fields_is_a_cel_rule() -> None:
    (rule,) = schema("TrainingJob")["properties"]["spec"]["x-kubernetes-validations"]
    assert rule["rule"] == "!has(self.minReplicas) || self.minReplicas <= self.replicas"
    rules = schema("TrainingJob")["x-kubernetes-validations"]
    assert any("size(self.metadata.name)" in each["rule"] for each in rules)


def test_the_pod_template_is_kept_as_it_comes() -> None:
    template = schema("TrainingJob")["properties"]["spec"]["properties"]["template"]
    assert template["x-kubernetes-preserve-unknown-fields"] is True
    assert template["type"] == "object"


def test_defaults_are_kept() -> None:
    spec = schema("TrainingJob")["properties"]["spec"]["properties"]
    assert spec["backoffLimit"]["default"] == 3
    assert spec["checkpoint"]["default"] == {"gracePeriodSeconds": 120}
    assert "default" not in spec["minReplicas"]


def test_kueues_unknown_fields_are_preserved_and_ours_are_not() -> None:
    keep = "x-kubernetes-preserve-unknown-fields"
    assert schema("ClusterQueue")["properties"]["spec"][keep] is True
    assert keep not in schema("TrainingJob")["properties"]["spec"]
    assert keep not in schema("NodeHealth")["properties"]["status"]


class Inner(WireModel):
    """An inner object."""

    key: Literal["only"]
    amount: Quantity = 1


class Traps(WireModel):
    """Everything that JSON Schema says differently."""

    above: Annotated[StrictInt, Field(gt=3, lt=9)]
    maybe: int | None = None
    choice: Literal["a", "b"] | None = None
    inner: Inner
    many: tuple[Inner, ...] = map_list("key", at_most=4)
    labels: dict[str, str] | None = None


class Whole(WireModel):
    """A kind."""

    spec: Traps


def test_the_traps_of_json_schema_are_translated() -> None:
    traps = crd.structural_schema(Whole)["properties"]["spec"]["properties"]
    assert traps["above"] == {
        "type": "integer",
        "minimum": 3,
        "exclusiveMinimum": True,
        "maximum": 9,
        "exclusiveMaximum": True,
    }
    assert traps["maybe"] == {"type": "integer", "nullable": True}
    assert traps["choice"] == {"type": "string", "enum": ["a", "b"]}
    assert traps["inner"]["properties"]["key"] == {"type": "string", "enum": ["only"]}
    assert traps["inner"]["properties"]["amount"]["x-kubernetes-int-or-string"] is True
    assert traps["inner"]["properties"]["amount"]["default"] == 1
    assert traps["many"]["items"]["properties"].keys() == {"key", "amount"}
    assert traps["labels"]["additionalProperties"] == {"type": "string"}
    assert violations(crd.structural_schema(Whole)) == []


class Undecided(WireModel):
    """A union that has no structural schema."""

    value: StrictInt | dict[str, str]


def test_a_union_of_types_is_refused_not_guessed() -> None:
    with pytest.raises(ValueError, match="no structural schema"):
        crd.structural_schema(Undecided)
