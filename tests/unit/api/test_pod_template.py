"""What a job asks of its pod template."""

import kubernetes.client
import pytest

from clusterops.api import names, pod_fields
from clusterops.api.training_job import TrainingJob
from clusterops.api.validation import problems

CONTAINER = "spec.template.spec.containers[0]"


def found(job) -> dict[str, str]:
    return {problem.field: problem.message for problem in problems(TrainingJob, job)}


def test_a_container_that_does_nothing_is_refused(job, container) -> None:
    del container["command"]
    assert list(found(job)) == [f"{CONTAINER}.command"]
    container["args"] = ["train"]
    assert found(job) == {}


def test_a_container_without_an_image_is_refused_as_kubernetes_would(job, container) -> None:
    container["image"] = ""
    assert list(found(job)) == [f"{CONTAINER}.image"]


@pytest.mark.parametrize("containers", [None, [], "x", [1]])
def test_there_must_be_a_container(job, containers) -> None:
    job["spec"]["template"]["spec"]["containers"] = containers
    del job["spec"]["checkpoint"]
    assert len(found(job)) == 1


def test_a_second_container_is_refused_with_the_way_out(job, container) -> None:
    job["spec"]["template"]["spec"]["containers"].append(container)
    assert "restartPolicy Always" in found(job)["spec.template.spec.containers"]


def test_numbers_in_a_command_are_named(job, container) -> None:
    container["args"] = ["--steps", 300]
    assert found(job) == {f"{CONTAINER}.args": "must be a list of texts; put numbers in quotes"}


@pytest.mark.parametrize("amount", [0.5, "0.5", "1k", -1, True, "x"])
def test_gpus_are_whole(job, container, amount) -> None:
    container["resources"]["limits"][names.RESOURCE_GPU] = amount
    assert list(found(job)) == [f'{CONTAINER}.resources.limits["nvidia.com/gpu"]']


def test_requested_gpus_equal_the_limit(job, container) -> None:
    container["resources"]["requests"] = {names.RESOURCE_GPU: "4"}
    assert found(job) == {}
    container["resources"]["requests"] = {names.RESOURCE_GPU: 2}
    assert list(found(job)) == [f'{CONTAINER}.resources.requests["nvidia.com/gpu"]']


def test_a_job_without_gpus_is_a_job(job, container) -> None:
    del container["resources"]
    assert found(job) == {}
    assert TrainingJob.from_wire(job).gpus == 0


@pytest.mark.parametrize("name", [names.ENV_AGENT_URL, names.ENV_MASTER_ADDR, names.ENV_RANK])
def test_what_the_operator_sets_is_refused(job, container, name: str) -> None:
    container["env"] = [{"name": name, "value": "x"}]
    assert list(found(job)) == [f"{CONTAINER}.env[0].name"]


def test_ranks_are_the_users_own_with_several_processes_in_a_pod(job, container) -> None:
    job["spec"]["processesPerPod"] = 4
    container["env"] = [{"name": names.ENV_RANK, "value": "0"}]
    assert found(job) == {}


def test_environment_values_are_text_and_names_unique(job, container) -> None:
    container["env"] = [{"name": "A", "value": 1}, {"name": "A", "value": "2"}, {"value": "x"}]
    assert list(found(job)) == [
        f"{CONTAINER}.env[0].value",
        f"{CONTAINER}.env[1].name",
        f"{CONTAINER}.env[2].name",
    ]


def test_a_mount_names_a_volume_and_a_place_of_its_own(job, container) -> None:
    container["volumeMounts"] += [
        {"name": "nowhere", "mountPath": "/x"},
        {"name": "kept", "mountPath": "relative"},
        {"name": "kept", "mountPath": "/checkpoints/"},
    ]
    assert list(found(job)) == [
        f"{CONTAINER}.volumeMounts[1].name",
        f"{CONTAINER}.volumeMounts[2].mountPath",
        f"{CONTAINER}.volumeMounts[3].mountPath",
    ]


def test_only_the_operator_restarts(job) -> None:
    job["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    assert list(found(job)) == ["spec.template.spec.restartPolicy"]
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    assert found(job) == {}


def test_labels_of_the_operator_are_refused(job) -> None:
    job["spec"]["template"]["metadata"] = {"labels": {names.LABEL_RANK: "0", "team": "a"}}
    assert list(found(job)) == ['spec.template.metadata.labels["clusterops.io/rank"]']


@pytest.mark.parametrize(
    ("field", "meant"),
    [("volumeMount", "volumeMounts"), ("Command", "command"), ("arg", "args"), ("evn", "env")],
)
def test_a_slip_in_a_field_of_kubernetes_is_named(job, container, field, meant) -> None:
    container[field] = container.get(meant, [])
    assert found(job)[f"{CONTAINER}.{field}"] == f'unknown field (did you mean "{meant}"?)'


def test_a_field_of_a_newer_kubernetes_passes(job, container) -> None:
    container["quantumEntanglementPolicy"] = "Always"
    job["spec"]["template"]["spec"]["restartPolicyRulesOfTomorrow"] = []
    assert found(job) == {}


@pytest.mark.parametrize(
    ("volume", "kept"),
    [
        ({"persistentVolumeClaim": {"claimName": "a"}}, True),
        ({"hostPath": {"path": "/srv"}}, True),
        ({"nfs": {"server": "a", "path": "/"}}, True),
        ({"emptyDir": {}}, False),
        ({"ephemeral": {}}, False),
        ({"csi": {"driver": "a"}}, False),
        ({"configMap": {"name": "a"}}, False),
        ({"projected": {}}, False),
        ({}, False),
    ],
)
def test_a_checkpoint_lies_on_a_volume_that_outlives_the_pod(job, volume, kept: bool) -> None:
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "kept", **volume}]
    assert (list(found(job)) == []) is kept
    if not kept:
        assert list(found(job)) == ["spec.checkpoint.directory"]


@pytest.mark.parametrize("directory", ["/checkpoints", "/checkpoints/", "/checkpoints/a/b"])
def test_a_checkpoint_directory_may_be_the_mount_or_below(job, directory: str) -> None:
    job["spec"]["checkpoint"]["directory"] = directory
    assert found(job) == {}


@pytest.mark.parametrize(
    "directory",
    ["/checkpoints2", "/check", "/", "/checkpoints/../x", "/checkpoints//x", "relative"],
)
def test_a_checkpoint_directory_elsewhere_is_refused(job, directory: str) -> None:
    job["spec"]["checkpoint"]["directory"] = directory
    assert list(found(job)) == ["spec.checkpoint.directory"]


def test_the_innermost_mount_decides(job, container) -> None:
    container["volumeMounts"].append({"name": "scratch", "mountPath": "/checkpoints/llm-7b"})
    job["spec"]["template"]["spec"]["volumes"].append({"name": "scratch", "emptyDir": {}})
    assert "emptyDir" in found(job)["spec.checkpoint.directory"]


def test_a_job_without_checkpoints_needs_no_volume(job) -> None:
    del job["spec"]["checkpoint"]
    job["spec"]["template"]["spec"]["volumes"] = [{"name": "kept", "emptyDir": {}}]
    assert found(job) == {}


@pytest.mark.parametrize(
    ("ours", "model"),
    [
        (pod_fields.TEMPLATE_FIELDS, kubernetes.client.V1PodTemplateSpec),
        (pod_fields.POD_FIELDS, kubernetes.client.V1PodSpec),
        (pod_fields.CONTAINER_FIELDS, kubernetes.client.V1Container),
        (pod_fields.VOLUME_MOUNT_FIELDS, kubernetes.client.V1VolumeMount),
        (pod_fields.RESOURCES_FIELDS, kubernetes.client.V1ResourceRequirements),
        (pod_fields.ENV_FIELDS, kubernetes.client.V1EnvVar),
    ],
)
def test_our_lists_of_fields_are_those_of_the_official_client(ours, model) -> None:
    assert sorted(ours) == sorted(model.model_json_schema()["properties"])
