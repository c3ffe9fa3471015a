"""The pods of an attempt."""

from typing import Any

import msgspec
import pytest
from support.operator_builders import TEMPLATE, job, running, workload

from clusterops.api import names
from clusterops.core import pods
from clusterops.core.observed import Checkpoint, CheckState, Flavor, Observed, PodSetUpdate
from clusterops.core.settings import Settings

URL = "https://127.0.0.1:8443"
CONTAINERS = Settings(agent_url=URL)
PROCESSES = Settings(runtime="processes", agent_url=URL)
FLAVOR = Flavor({"gpu": "h100"}, ({"key": "gpu", "operator": "Exists"},))


def made(settings: Settings = CONTAINERS, rank: int = 1, **spec: Any) -> dict[str, Any]:
    of = job(running(master_port=29_401), **spec)
    view = Observed(workload=workload(of), flavors={"h100": FLAVOR})
    return pods.desired_pod(of, view, 3, rank, settings)


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]}


def test_a_pod_is_named_labelled_and_owned() -> None:
    metadata = made()["metadata"]
    assert metadata["name"] == "a-3-1"
    assert metadata["labels"] == {
        "team": "nlp",
        names.LABEL_JOB: "a",
        names.LABEL_ATTEMPT: "3",
        names.LABEL_RANK: "1",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainingJob", "uid-a", True)
    assert "kueue.x-k8s.io/queue-name" not in metadata["labels"]


def test_a_pod_never_restarts_in_place_and_goes_to_its_flavors_nodes() -> None:
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}
    spec = made(template=template)["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["nodeSelector"] == {"gpu": "h100"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("window", "own", "grace"),
    [(120, None, 120), (120, 300, 300), (120, 30, 120), (900, None, 600)],
)
def test_a_kubelet_gives_a_pod_that_it_ends_the_whole_window(
    window: int, own: int | None, grace: int
) -> None:
    spec = {**TEMPLATE["spec"]}
    if own is not None:
        spec["terminationGracePeriodSeconds"] = own
    template = {**TEMPLATE, "spec": spec}
    spec = made(template=template, checkpoint=Checkpoint("/checkpoints/a", window))["spec"]
    assert spec["terminationGracePeriodSeconds"] == grace


def test_the_environment_is_the_contract() -> None:
    assert environment(made()) == {
        names.ENV_JOB: "a",
        names.ENV_NAMESPACE: "research",
        names.ENV_JOB_UID: "uid-a",
        names.ENV_ATTEMPT: "3",
        names.ENV_POD_RANK: "1",
        names.ENV_PODS: "2",
        names.ENV_CHECKPOINT_DIR: "/checkpoints/a",
        names.ENV_AGENT_URL: URL,
        names.ENV_AGENT_TOKEN_FILE: "/var/run/clusterops/token",
        names.ENV_AGENT_CA_FILE: "/var/run/clusterops/ca.crt",
        names.ENV_NNODES: "2",
        names.ENV_NODE_RANK: "1",
        names.ENV_MASTER_ADDR: "a-3-0.a-ranks.research.svc",
        names.ENV_MASTER_PORT: "29500",
        names.ENV_RANK: "1",
        names.ENV_WORLD_SIZE: "2",
        names.ENV_LOCAL_RANK: "0",
    }


def test_a_pod_that_starts_its_own_ranks_is_not_told_one() -> None:
    told = environment(made(processes_per_pod=8))
    assert not {names.ENV_RANK, names.ENV_WORLD_SIZE, names.ENV_LOCAL_RANK} & set(told)
    assert told[names.ENV_NODE_RANK] == "1"


def test_processes_meet_on_loopback_at_the_port_in_status() -> None:
    pod = made(PROCESSES)
    told = environment(pod)
    assert (told[names.ENV_MASTER_ADDR], told[names.ENV_MASTER_PORT]) == ("127.0.0.1", "29401")
    assert "subdomain" not in pod["spec"]


def test_the_users_own_variables_stay_unless_they_are_ours() -> None:
    env = [{"name": "LR", "value": "1"}, {"name": names.ENV_RANK, "value": "77"}]
    container = {**TEMPLATE["spec"]["containers"][0], "env": env}
    pod = made(template={"spec": {"containers": [container]}})
    entries = [entry["name"] for entry in pod["spec"]["containers"][0]["env"]]
    assert entries[-1] == "LR", "ours come first, so that $(NAME) resolves"
    assert entries.count(names.ENV_RANK) == 1
    assert environment(pod)[names.ENV_RANK] == "1"


def test_the_token_is_mounted_in_every_container() -> None:
    containers = [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}]
    template = {"spec": {"containers": containers, "initContainers": [{"name": "i"}]}}
    spec = made(template=template)["spec"]
    assert spec["volumes"][-1]["secret"]["secretName"] == "a-3-agent"
    for container in (*spec["containers"], *spec["initContainers"]):
        mount = container["volumeMounts"][-1]
        assert (mount["mountPath"], mount["readOnly"]) == ("/var/run/clusterops", True)


def test_the_template_is_not_changed() -> None:
    before = msgspec.json.encode(TEMPLATE)
    made()
    assert msgspec.json.encode(TEMPLATE) == before


def test_an_admission_of_fewer_pods_is_the_size_of_the_world() -> None:
    of = job(running(), replicas=4, min_replicas=2)
    view = Observed(workload=workload(of, count=3))
    told = environment(pods.desired_pod(of, view, 1, 0, CONTAINERS))
    assert told[names.ENV_WORLD_SIZE] == told[names.ENV_PODS] == "3"


def test_admission_checks_may_add_to_the_pods() -> None:
    of = job(running())
    update = PodSetUpdate("main", {"l": "1"}, {"a": "1"}, {"zone": "x"}, ({"key": "z"},))
    held = workload(of)
    checked = msgspec.structs.replace(
        held.status, admission_checks=(CheckState("c", "Ready", "", (update,)),)
    )
    view = Observed(workload=msgspec.structs.replace(held, status=checked))
    pod = pods.desired_pod(of, view, 1, 0, CONTAINERS)
    assert pod["metadata"]["labels"]["l"] == "1"
    assert pod["metadata"]["annotations"]["a"] == "1"
    assert pod["spec"]["nodeSelector"]["zone"] == "x"
    assert {"key": "z"} in pod["spec"]["tolerations"]


def test_the_service_is_headless_and_publishes_pods_that_are_not_ready() -> None:
    spec = pods.desired_service(job())["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert spec["selector"] == {names.LABEL_JOB: "a"}
