"""Whatever text comes in: a manifest is read or refused in words, and never anything else."""

import json

from hypothesis import given
from hypothesis import strategies as st

from clusterops.api import manifest
from clusterops.api.names import TRAINING_JOBS
from clusterops.api.spelling import edits
from clusterops.api.text import printable
from clusterops.api.training_job import TrainingJob
from clusterops.api.validation import problems
from clusterops.api.yaml_source import documents

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["spec", "metadata", "template", "replicas", "minReplicas", "checkpoint", "containers", "name",
     "volumeMounts", "volumes", "directory", "env", "resources", "limits", "command", "labels"]
)  # fmt: skip
NEARLY_JOBS = st.recursive(
    JSON,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=20,
)


def complaints_about(text: str) -> tuple[manifest.Complaint, ...]:
    try:
        found = manifest.read(text, "any.yaml")
    except manifest.ManifestError as refusal:
        return refusal.complaints
    assert found
    return ()


@given(st.text() | st.text(alphabet=" \n-:[]{}&*!|>'\"#%@a1", max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    for complaint in complaints_about(text):
        assert printable(complaint.pointed(), keep="\n") == complaint.pointed()
        assert 1 <= complaint.mark.line <= text.count("\n") + 2


@given(JSON)
def test_json_means_the_same_to_the_yaml_reader(value) -> None:
    text = json.dumps(value)
    found = documents(text)
    if value == "" or value is None:
        return
    assert [(document.value, document.flaws) for document in found] == [(value, [])]


@given(NEARLY_JOBS)
def test_nearly_a_job_is_judged_without_a_crash(wire) -> None:
    whole = {"apiVersion": TRAINING_JOBS.api_version, "kind": "TrainingJob", "spec": wire}
    assert problems(TrainingJob, wire)
    assert all(problem.message for problem in problems(TrainingJob, whole))


@given(st.text(alphabet="abc", max_size=8), st.text(alphabet="abc", max_size=8))
def test_edits_are_symmetric_and_zero_for_equals_alone(word: str, other: str) -> None:
    assert edits(word, other, 10) == edits(other, word, 10)
    assert (edits(word, other, 10) == 0) == (word == other)
