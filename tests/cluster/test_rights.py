"""Who may do what under the shipped roles: users of a namespace, and node agents."""

import json

import pytest
import yaml
from support.controlplane import ControlPlane
from support.controlplane_product import AGENTS, MANIFESTS, Kubectl
from support.controlplane_tenant import Tenant, eventually

EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))
COUNTER = MANIFESTS / "examples" / "counter.yaml"


def user(tenant: Tenant, name: str, role: str) -> Kubectl:
    """Somebody with one of Kubernetes' own roles in the tenant's namespace."""
    kubectl = Kubectl(tenant.plane)
    kubectl(
        *("create", "rolebinding", name, "-n", tenant.namespace),
        *(f"--clusterrole={role}", f"--user={name}"),
    )
    found = Kubectl(tenant.plane, tenant.plane.kubeconfig_of(name))
    # A controller puts our rules into Kubernetes' roles.
    eventually(
        lambda: may(found, tenant.namespace, "get", "trainingjobs.clusterops.io"),
        f"the role {role} to know of training jobs",
    )
    return found


def may(kubectl: Kubectl, namespace: str, verb: str, resource: str) -> bool:
    kind, _, part = resource.partition("/")
    words = ["auth", "can-i", verb, kind, "-n", namespace]
    asked = kubectl(*words, *([f"--subresource={part}"] if part else []), check=False)
    return asked.stdout.strip() == "yes"


def test_who_may_edit_a_namespace_may_submit_and_cancel_there_and_nowhere_else(
    tenant: Tenant,
) -> None:
    editor = user(tenant, f"editor-{tenant.suffix}", "edit")
    job = yaml.safe_load(COUNTER.read_text())
    job["metadata"]["namespace"] = tenant.namespace
    job["spec"]["queueName"] = "queue"
    file = tenant.folder / "job.json"
    file.write_text(json.dumps(job))
    editor("apply", "-f", str(file))
    tenant.until_phase("counter", "Pending", "Admitted", "Starting", "Running")
    editor("get", "workloads,localqueues", "-n", tenant.namespace)
    editor("delete", "-f", str(file), "--wait=false")
    assert "forbidden" in editor("get", "trainingjobs", "-n", "research", check=False).stderr


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("create", "workloads.kueue.x-k8s.io"),
        ("patch", "workloads.kueue.x-k8s.io"),
        ("update", "workloads.kueue.x-k8s.io/status"),
        ("patch", "trainingjobs.clusterops.io/status"),
        ("patch", "nodehealths.clusterops.io"),
    ],
)
def test_who_may_edit_a_namespace_has_no_power_over_others_jobs(
    tenant: Tenant, verb: str, resource: str
) -> None:
    editor = user(tenant, f"editor-{tenant.suffix}", "edit")
    assert not may(editor, tenant.namespace, verb, resource)


def test_who_may_view_a_namespace_sees_its_jobs_and_changes_none(tenant: Tenant) -> None:
    viewer = user(tenant, f"viewer-{tenant.suffix}", "view")
    assert not may(viewer, tenant.namespace, "delete", "trainingjobs.clusterops.io")
    viewer("get", "trainingjobs,workloads", "-n", tenant.namespace)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_is_taken_by_the_server(plane: ControlPlane, file: object) -> None:
    if str(file).endswith("kustomization.yaml"):
        pytest.skip("lists the others")
    Kubectl(plane)("apply", "--dry-run=server", "-f", str(file))


@pytest.mark.parametrize("overlay", ["default", "ha"])
def test_every_overlay_is_taken_by_the_server(plane: ControlPlane, overlay: str) -> None:
    folder = MANIFESTS / "overlays" / overlay
    Kubectl(plane)("apply", "--server-side", "--dry-run=server", "-k", str(folder))


def test_a_node_agent_has_its_role_and_no_more(plane: ControlPlane) -> None:
    agent = Kubectl(plane, plane.kubeconfig_of("agent:other", (AGENTS,)))
    assert may(agent, "research", "patch", "pods/status")
    for verb, resource in (("create", "pods"), ("list", "secrets"), ("delete", "nodes")):
        assert not may(agent, "research", verb, resource)


def test_nobody_submits_in_anothers_name(tenant: Tenant) -> None:
    name = f"editor-{tenant.suffix}"
    editor = user(tenant, name, "edit")
    job = yaml.safe_load(COUNTER.read_text())
    job["metadata"].update(namespace=tenant.namespace, annotations={"clusterops.io/user": "bob"})
    file = tenant.folder / "job.json"
    file.write_text(json.dumps(job))
    refused = editor("create", "-f", str(file), check=False)
    assert f"must be {name}" in refused.stderr
    job["metadata"]["annotations"] = {"clusterops.io/user": name}
    file.write_text(json.dumps(job))
    editor("create", "-f", str(file))
    # The operator writes to the job without being its user.
    tenant.until_phase("counter", "Pending", "Admitted", "Starting")
    claimed = editor(
        *("annotate", "trainingjob", "counter", "-n", tenant.namespace, "--overwrite"),
        "clusterops.io/user=bob",
        check=False,
    )
    assert claimed.returncode != 0


def test_a_namespace_may_be_kept_from_a_priority_class(tenant: Tenant) -> None:
    tenant.submit("earlier", steps=1, priority="high")
    kubectl = Kubectl(tenant.plane)
    kubectl("annotate", "namespace", tenant.namespace, "clusterops.io/priority-classes=low,normal")

    def refused() -> bool:
        asked = tenant.plane.request("POST", tenant.path() + "?dryRun=All", job("high"))
        return asked.status == 403 and b"may use low, normal" in asked.content

    def job(priority: str) -> dict[str, object]:
        counter = yaml.safe_load(COUNTER.read_text())
        counter["metadata"]["namespace"] = tenant.namespace
        counter["spec"]["priorityClassName"] = priority
        return dict(counter)

    eventually(refused, "the class high to be refused")
    assert tenant.plane.request("POST", tenant.path() + "?dryRun=All", job("low")).status == 201
    # One that was there before can still be written to.
    kubectl("label", "trainingjob", "earlier", "team=a", "-n", tenant.namespace)
