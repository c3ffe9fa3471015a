"""Objects of the API to values and back: nothing of a remediation is lost, foreign taints are kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterops.api import names
from clusterops.api.node_health import NodeHealth, RemediationState, Rung, Verdict
from clusterops.core.remediation_budget import Attempt
from clusterops.core.remediation_view import Execution, Proof, Remedy
from clusterops.operator import nodes_verification as verification
from clusterops.operator import nodes_view as views

EMPTY = {"metadata": {"name": "n1", "resourceVersion": "7"}}
words = st.from_regex(r"[a-z0-9-]{1,30}", fullmatch=True)
moments = st.integers(1_600_000_000_000, 2_000_000_000_000).map(lambda ms: ms / 1000)
remedies = st.builds(
    Remedy,
    incident=words,
    cause=words,
    boot_id=words,
    rung=st.sampled_from(Rung),
    state=st.sampled_from(RemediationState),
    expires=st.none() | moments,
    begun_at=moments,
    executed_at=st.none() | moments,
    execution=st.sampled_from(Execution),
    ticket=st.none() | words,
)
tried = st.builds(
    Attempt, st.just("n1"), words, words, st.sampled_from(Rung), moments, st.booleans()
)


@given(remedies, st.lists(tried, max_size=views.KEPT_ATTEMPTS).map(tuple))
def test_a_remediation_written_down_is_read_as_it_was_and_valid(remedy, attempts):
    patch = views.patch(EMPTY, remedy, attempts)
    spec = {
        name: value for name, value in patch["spec"]["remediation"].items() if value is not None
    }
    stored = {
        "apiVersion": "clusterops.io/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": "n1", "annotations": patch["metadata"]["annotations"]},
        "spec": {"remediation": spec},
    }
    NodeHealth.from_wire(json.loads(json.dumps(stored)))
    assert views.remedy(stored) == remedy
    assert views.attempts(stored) == attempts


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{"])
def test_an_annotation_that_somebody_broke_is_an_empty_one(text):
    annotated = {"metadata": {"name": "n1", "annotations": {names.ANNOTATION_REMEDIATION: text}}}
    assert views.attempts(annotated) == ()
    assert views.remedy(annotated) is None


taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["a", "b", names.TAINT_HEALTH]), "effect": words}
    ),
    max_size=5,
)


@given(taints, st.none() | words)
def test_only_our_taint_is_ever_changed(held, value):
    after = views.taints({"spec": {"taints": held}}, value)
    others = [taint for taint in held if taint["key"] != names.TAINT_HEALTH]
    assert [taint for taint in after if taint["key"] != names.TAINT_HEALTH] == others
    assert sum(taint["key"] == names.TAINT_HEALTH for taint in after) == (value is not None)


def health(**status):
    return {**EMPTY, "status": status}


def test_ended_incidents_are_no_more_and_open_ones_name_their_cause():
    found = views.incidents(
        health(
            incidents=[
                {"id": "xid-79-abc", "verdict": "RebootNode", "openedAt": "2030-01-01T00:00:00Z"},
                {
                    "id": "xid-64-def",
                    "verdict": "HardwareTicket",
                    "closedAt": "2030-01-01T00:00:00Z",
                },
            ]
        )
    )
    assert [(each.id, each.cause, each.verdict) for each in found] == [
        ("xid-79-abc", "xid-79", Verdict.REBOOT_NODE)
    ]


def test_a_reading_without_an_incident_is_one_of_its_own_with_a_lasting_name():
    gpu = {"uuid": "GPU-1", "verdict": "HardwareTicket", "evidence": []}
    first = views.incidents(health(verdict="HardwareTicket", gpus=[gpu]))
    again = views.incidents(
        health(verdict="HardwareTicket", gpus=[{**gpu, "evidence": [{"observedAt": "x"}]}])
    )
    assert [each.id for each in first] == [each.id for each in again]
    assert first[0].gpus == ("GPU-1",)
    assert len(first) == 1


def test_what_an_incident_covers_is_not_counted_again():
    gpu = {"uuid": "GPU-1", "verdict": "RebootNode"}
    incident = {"id": "xid-79-a", "verdict": "RebootNode", "gpus": ["GPU-1"]}
    found = views.incidents(health(verdict="RebootNode", gpus=[gpu], incidents=[incident]))
    assert [each.id for each in found] == ["xid-79-a"]


def test_the_word_of_a_newer_daemon_is_never_a_reason_to_act():
    assert not views.concerns(health(verdict="Explode", gpus=[{"uuid": "G", "verdict": "Explode"}]))


REMEDY = Remedy("i", "c", "b1", Rung.REBOOT_NODE, RemediationState.VERIFYING)


def pod(key=REMEDY.key, phase="Succeeded", message='{"passed": true}', **metadata):
    ended = {"state": {"terminated": {"exitCode": 0, "message": message}}}
    return {
        "metadata": {"annotations": {names.ANNOTATION_REMEDIATION: key}, **metadata},
        "status": {"phase": phase, "containerStatuses": [ended]},
    }


@pytest.mark.parametrize(
    ("found", "proof"),
    [
        (pod(), Proof.PASSED),
        (pod(phase="Running"), Proof.RUNNING),
        (pod(phase="Failed"), Proof.FAILED),
        (pod(message=""), Proof.FAILED),
        (pod(message='{"passed": "true"}'), Proof.FAILED),
        (pod(message="[1]"), Proof.FAILED),
        (pod(key="i/b0/reset_gpu"), Proof.NONE),
        (pod(deletionTimestamp="2030-01-01T00:00:00Z"), Proof.NONE),
        (None, Proof.NONE),
    ],
)
def test_only_the_result_of_this_remediations_own_pod_proves_anything(found, proof):
    assert verification.proof(found, REMEDY) is proof


def test_the_pod_is_pinned_tolerates_our_taint_and_has_no_token():
    node = {
        "metadata": {"name": "n1", "labels": {names.LABEL_SIMULATED: "true"}},
        "status": {"capacity": {"nvidia.com/gpu": "8"}},
    }
    spec = verification.pod(node, "k", verification.VerificationTemplate())["spec"]
    assert spec["nodeName"] == "n1"
    assert spec["automountServiceAccountToken"] is False
    assert {"key": names.TAINT_HEALTH, "operator": "Exists"} in spec["tolerations"]
    assert spec["containers"][0]["command"][-5:] == [
        "--gpus", "8", "--result", "/dev/termination-log", "--simulated",
    ]  # fmt: skip


def test_the_figures_of_a_nodes_checks_are_kept_on_the_node():
    node = {"metadata": {"name": "n1"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    template = verification.VerificationTemplate(history="/var/lib/site/checks")
    spec = verification.pod(node, "k", template)["spec"]
    (container,) = spec["containers"]
    (volume,), (mount,) = spec["volumes"], container["volumeMounts"]
    assert volume["hostPath"] == {"path": "/var/lib/site/checks", "type": "DirectoryOrCreate"}
    assert (volume["name"], mount["mountPath"]) == (mount["name"], verification.HISTORY_MOUNT)
    place = container["command"].index("--history")
    assert container["command"][place + 1].startswith(f"{mount['mountPath']}/")
    assert "volumes" not in verification.pod(node, "k", verification.VerificationTemplate())["spec"]


def test_a_reset_concerns_all_gpus_that_the_hardware_resets_together():
    gpus = [
        {"uuid": "GPU-1", "verdict": "ResetGpu", "resetsWith": ["GPU-3", "GPU-2"]},
        {"uuid": "GPU-4", "verdict": "ResetGpu"},
    ]
    told = [{"id": "xid-119-a", "verdict": "ResetGpu", "gpus": ["GPU-1"]}]
    by_log, by_nvml = views.incidents({"status": {"gpus": gpus, "incidents": told}})
    assert (by_log.gpus, by_log.resets) == (("GPU-1",), ("GPU-1", "GPU-2", "GPU-3"))
    assert (by_nvml.gpus, by_nvml.resets) == (("GPU-4",), ())
