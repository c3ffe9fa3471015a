"""The operator's roles are exact: it was refused nothing, and no rule of theirs is superfluous.

Read from the audit log of the run so far, after a job of each kind has passed through.
"""

import json
from typing import Any

import pytest
import yaml
from support.controlplane import ControlPlane
from support.controlplane_product import ACCOUNT, MANIFESTS, NAMESPACE
from support.controlplane_tenant import Tenant

USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
ROLES = MANIFESTS / "operator" / "roles.yaml"
Json = dict[str, Any]
Right = tuple[str, str, str]

# Used in moments that a quiet run does not bring about; each has a unit test of its own.
SELDOM: dict[Right, str] = {
    ("", "pods", "get"): "a pod of that name exists already; the pod of a verification",
    ("", "pods", "delete"): "a pod that outlives its window",
    ("", "pods", "patch"): "a pod that does not leave by itself",
    ("", "services", "create"): "runtime containers",
    ("", "services", "get"): "a Service of that name exists already",
    ("", "nodes", "get"): "a node has a fault",
    ("", "nodes", "patch"): "a node has a fault",
    ("", "configmaps", "get"): "the kill switch, once a node has a fault",
    ("", "events", "patch"): "the same event again",
    ("", "secrets", "update"): "the certificate is renewed",
    ("clusterops.io", "nodehealths", "get"): "a node has a fault",
    ("clusterops.io", "nodehealths", "patch"): "a node has a fault",
    ("clusterops.io", "trainingjobs", "delete"): "ttlSecondsAfterFinished",
    ("clusterops.io", "trainingjobs/finalizers", "update"): "asked by admission, never requested",
    ("kueue.x-k8s.io", "workloads", "delete"): "a job whose queue can never hold it",
}


def requests(plane: ControlPlane) -> list[Json]:
    """What the operator asked of the server so far."""
    lines = plane.audit_log.read_text().splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in events if event["user"]["username"] == USER]


def granted() -> set[Right]:
    """Every (group, resource, verb) of the shipped roles."""
    rights: set[Right] = set()
    for document in yaml.safe_load_all(ROLES.read_text()):
        for rule in document.get("rules") or ():
            rights.update(
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            )
    return rights


def right(event: Json) -> Right | None:
    """What an audited request needed; None for one about no resource."""
    about = event.get("objectRef") or {}
    if "resource" not in about:
        return None
    resource = about["resource"] + (f"/{about['subresource']}" if "subresource" in about else "")
    return about.get("apiGroup", ""), resource, event["verb"]


@pytest.mark.timeout(240)
def test_the_operator_uses_all_of_its_rights_and_is_refused_nothing(tenant: Tenant) -> None:
    tenant.add_node()
    tenant.submit("low", steps=150)
    tenant.until_saved("low")
    tenant.submit("high", steps=5, priority="high")
    tenant.until_phase("high", "Succeeded")
    tenant.until_phase("low", "Succeeded")
    tenant.plane.send("DELETE", tenant.path("high"))
    tenant.plane.send("DELETE", tenant.path("low"))
    events = requests(tenant.plane)
    refused = [event for event in events if event["responseStatus"]["code"] == 403]
    # A namespace on its way out takes no new objects, whoever asks.
    refused = [one for one in refused if "being terminated" not in json.dumps(one)]
    assert refused == []
    used = {found for event in events if (found := right(event)) is not None}
    superfluous = granted() - used - set(SELDOM)
    assert superfluous == set()
    assert set(SELDOM) <= granted(), "an excuse for a right that is not granted"
