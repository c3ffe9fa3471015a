"""Which pods a node takes, and how a pod's GPUs are divided among its containers."""

import pytest

from clusterops.nodeagent import admission
from clusterops.nodeagent.admission import Rules, refuse, share, wanted_gpus

OWNER = {
    "apiVersion": "clusterops.io/v1alpha1",
    "kind": "TrainingJob",
    "name": "j",
    "uid": "x",
    "controller": True,
}
ANYTHING = Rules(None, 8)
STRICT = Rules(("research",), 8)


def container(name: str = "main", gpus: object = None, kind: str = "limits") -> dict:
    resources = {} if gpus is None else {"resources": {kind: {"nvidia.com/gpu": gpus}}}
    return {"name": name, **resources}


def pod(*containers: dict, owners: tuple = (), namespace: str = "research", **spec) -> dict:
    return {
        "metadata": {
            "name": "p",
            "namespace": namespace,
            "uid": "u",
            "ownerReferences": list(owners),
        },
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def test_on_ones_own_machine_any_pod_runs() -> None:
    assert refuse(pod(), ANYTHING) is None


def test_in_a_cluster_only_training_jobs_of_listed_namespaces_run() -> None:
    assert refuse(pod(owners=(OWNER,)), STRICT) is None
    foreign = refuse(pod(owners=(OWNER,), namespace="kube-system"), STRICT)
    assert foreign is not None
    assert "kube-system" in foreign.message
    for owners in (
        (),
        ({**OWNER, "kind": "Job"},),
        ({**OWNER, "apiVersion": "evil.io/v1"},),
        ({**OWNER, "controller": False},),
        ({**OWNER, "apiVersion": "clusterops.io.evil/v1"},),
    ):
        refused = refuse(pod(owners=owners), STRICT)
        assert refused is not None
        assert refused.reason == admission.NOT_ALLOWED


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (pod(container(gpus="9")), admission.OUT_OF_GPUS),
        (pod(container(gpus="half")), admission.UNSUPPORTED),
        (pod(container(gpus="500m")), admission.UNSUPPORTED),
        (pod(initContainers=[{"name": "s", "restartPolicy": "Always"}]), admission.UNSUPPORTED),
        (pod(container("../x")), admission.UNSUPPORTED),
        (pod(container("a/b")), admission.UNSUPPORTED),
        (pod(namespace=".."), admission.UNSUPPORTED),
    ],
)
def test_what_can_never_run_is_refused_with_its_reason(one, reason) -> None:
    refused = refuse(one, ANYTHING)
    assert refused is not None
    assert refused.reason == reason


def test_gpus_of_a_pod() -> None:
    assert wanted_gpus(pod(container(gpus="2"), container("b", gpus=1, kind="requests"))) == 3
    assert wanted_gpus(pod(initContainers=[container("i", gpus="4")])) == 4
    assert wanted_gpus(pod()) == 0


def test_containers_share_without_overlap_and_init_containers_begin_at_the_first() -> None:
    one = pod(
        container("a", gpus="1"),
        container("none"),
        container("b", gpus="2"),
        initContainers=[container("i", gpus="2")],
    )
    devices = ("x", "y", "z")
    assert share(one, "a", devices) == ("x",)
    assert share(one, "none", devices) == ()
    assert share(one, "b", devices) == ("y", "z")
    assert share(one, "i", devices) == ("x", "y")
