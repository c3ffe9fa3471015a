"""`clusterops manifests`: what is printed is what kubectl renders, with the image that was asked for."""

import shutil
from pathlib import Path

import pytest
import yaml

from clusterops.cli import errors, main, manifests

NO_KUBECTL = shutil.which("kubectl") is None
OPERATOR = """
apiVersion: apps/v1
kind: Deployment
spec: {template: {spec: {containers: [{image: clusterops:0.1.0}, {image: other/clusterops:1}]}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusterops-system}
"""


def test_every_folder_with_a_kustomization_can_be_printed() -> None:
    found = manifests.choices(manifests.shipped())
    assert {"default", "ha", "crd", "operator", "queues", "examples"} <= set(found)


def test_only_our_image_is_replaced() -> None:
    documents = list(yaml.safe_load_all(manifests.with_image(OPERATOR, "registry.example/c:2")))
    containers = documents[0]["spec"]["template"]["spec"]["containers"]
    assert [one["image"] for one in containers] == ["registry.example/c:2", "other/clusterops:1"]
    assert documents[1]["kind"] == "Namespace"


def test_an_unknown_name_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["manifests", "nope"]) == errors.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert "default" in said.err


def test_without_kubectl_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main.main(["manifests"]) == errors.FAILED
    assert "kubectl is not installed" in capsys.readouterr().err


@pytest.mark.skipif(NO_KUBECTL, reason="kubectl is not installed")
@pytest.mark.parametrize("which", ["default", "ha"])
def test_every_overlay_renders_and_names_each_object_once(
    which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["manifests", which]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    named = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len(named) == len(set(named))
    kinds = {kind for kind, _ in named}
    assert {"CustomResourceDefinition", "Deployment", "PodDisruptionBudget"} <= kinds
