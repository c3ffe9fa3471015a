"""Manifests: whole files accepted or refused with every problem at its line."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from clusterops.api import manifest
from clusterops.api.manifest import ManifestError
from clusterops.api.names import LOCAL_QUEUES, TRAINING_JOBS

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "manifests"
SHIPPED = sorted(
    path
    for folder in ("queues", "examples")
    for path in (ROOT / "manifests" / folder).glob("*.yaml")
    if path.name != "kustomization.yaml"
)


def complaints(text: str) -> list[str]:
    with pytest.raises(ManifestError) as refusal:
        manifest.read(text, "job.yaml")
    return [str(complaint) for complaint in refusal.value.complaints]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_manifest_is_valid(path: Path) -> None:
    assert manifest.read(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.parametrize("folder", ["crd", "queues", "examples"])
def test_every_shipped_file_is_listed_for_kustomize(folder: str) -> None:
    here = ROOT / "manifests" / folder
    text = (here / "kustomization.yaml").read_text(encoding="utf-8")
    for path in here.glob("*.yaml"):
        assert path.name == "kustomization.yaml" or f"- {path.name}\n" in text


def test_the_examples_fill_the_queue_and_need_half_of_it() -> None:
    jobs = {}
    for path in SHIPPED:
        for each in manifest.read(path.read_text(encoding="utf-8"), path.name):
            jobs[each.name] = each.value
    queue = jobs["ClusterQueue/research"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    low, high = jobs["TrainingJob/char-lm"], jobs["TrainingJob/char-lm-urgent"]

    def gpus(job: dict) -> int:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        return job["spec"]["replicas"] * container["resources"]["limits"]["nvidia.com/gpu"]

    assert gpus(low) == queue["nominalQuota"]
    assert gpus(high) * 2 == queue["nominalQuota"]
    classes = [jobs[f"WorkloadPriorityClass/{name}"]["value"] for name in ("low", "normal", "high")]
    assert [later - earlier for earlier, later in pairwise(classes)] == [1000] * 2


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_said_about_a_broken_file_is_the_recorded_text(path: Path) -> None:
    """UPDATE_GOLDEN=1 records anew; read the difference before it is committed."""
    with pytest.raises(ManifestError) as refusal:
        manifest.read(path.read_text(encoding="utf-8"), path.name)
    said = "\n".join(complaint.pointed() for complaint in refusal.value.complaints) + "\n"
    recorded = path.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        recorded.write_text(said, encoding="utf-8")
    assert said == recorded.read_text(encoding="utf-8")


def test_objects_come_with_kind_line_and_name() -> None:
    text = (
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q, namespace: a}\n"
        "spec: {clusterQueue: c}\n"
    )
    namespace, queue = manifest.read(text, "queue.yaml")
    assert (namespace.resource, namespace.line) == (None, 1)
    assert (queue.resource, queue.line, queue.name) == (LOCAL_QUEUES, 5, "LocalQueue/q")


def test_items_of_a_list_are_objects_of_the_file(job) -> None:
    other = {**job, "metadata": {"name": "other"}}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [job, other]})
    assert [each.resource for each in manifest.read(text, "x.json")] == [TRAINING_JOBS] * 2


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_a_file_without_an_object_says_so(text: str) -> None:
    assert complaints(text) == ["job.yaml:1: holds no object"]


@pytest.mark.parametrize("text", ["[]", "3", "just words"])
def test_a_file_of_something_else_says_what_is_wanted(text: str) -> None:
    assert complaints(text) == ["job.yaml:1: must be an object with apiVersion, kind and metadata"]


def test_another_version_of_our_kind_is_named() -> None:
    assert complaints(
        "apiVersion: clusterops/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n"
    ) == ["job.yaml:1: apiVersion: must be clusterops.io/v1alpha1 for a TrainingJob"]
    text = "apiVersion: clusterops.io/v1\nkind: TrainingJob\nmetadata: {name: a}\nspec: {}\n"
    assert any("apiVersion: must be clusterops.io/v1alpha1" in each for each in complaints(text))


def test_the_same_object_twice_is_named() -> None:
    one = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
    assert complaints(one + "---\n" + one) == [
        "job.yaml:5: metadata.name: Namespace/a is already in line 1"
    ]


def test_foreign_text_cannot_reach_the_terminal_unescaped() -> None:
    with pytest.raises(ManifestError) as refusal:
        manifest.read(
            'kind: "\\e[31mred\\n"\napiVersion: clusterops.io/v1alpha1\n', "\x1b]0;x.yaml"
        )
    shown = "\n".join(each.pointed() for each in refusal.value.complaints)
    assert "\x1b" not in shown
