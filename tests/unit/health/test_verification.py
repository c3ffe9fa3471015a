"""The proof that a node is healthy: each kind of doubt fails it."""

import json
import subprocess
import sys

import pytest
from support.health_nvml.build import Scenario, library

from health import verification
from health.events import Quantity
from health.nvml_messages import Values
from health.verification_simulated import simulated_faults
from health.verification_values import WELL, value_faults


def test_values_of_a_healthy_gpu_raise_no_doubt_and_unknown_ones_neither():
    assert value_faults({"recovery_action": 0, "fabric_state": 3}) == []
    assert value_faults({}) == []


@pytest.mark.parametrize("quantity", list(WELL))
def test_each_value_that_is_not_well_fails_the_proof(quantity):
    value = 2 if quantity in (Quantity.FABRIC_STATE, Quantity.FABRIC_HEALTH) else 1
    assert value_faults({quantity.value: value}) == [f"{quantity.value} is {value}"]


@pytest.mark.parametrize(
    ("names", "faults"),
    [("0,1", []), ("0", ["1 GPUs are there of 2"]), ("", ["0 GPUs are there of 2"])],
)
def test_simulated_gpus_are_counted_by_name(names, faults):
    assert simulated_faults(2, {"CUDA_VISIBLE_DEVICES": names}, {}) == faults


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ({"missing": 1}, "1 GPUs are there of 2"),
        ({"recovery_action": 2}, "GPU 1: recovery_action is 2"),
        ({"remap_pending": 1}, "GPU 1: remap_pending is 1"),
        ({"links_down": 3}, "GPU 1: links_down is 3"),
        ({"miscomputes": 1}, "GPU 1: the same product came out differently"),
    ],
)
def test_simulated_gpus_are_asked_the_same_questions(tmp_path, monkeypatch, broken, fault):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    said, result = tmp_path / "gpus.json", tmp_path / "result"
    asked = ["--gpus", "2", "--result", str(result), "--simulated", str(said)]
    assert verification.main(asked) == 0, "a file that is not there says nothing"
    said.write_text(json.dumps({"1": broken}))
    assert verification.main(asked) == 1
    assert json.loads(result.read_text())["faults"] == [fault]
    said.write_text("{}")
    assert verification.main(asked) == 0


def test_a_node_without_gpus_has_nothing_to_prove(tmp_path):
    assert verification.main(["--gpus", "0", "--result", str(tmp_path / "r")]) == 0
    assert json.loads((tmp_path / "r").read_text())["passed"] is True


def test_links_are_compared_among_gpus_that_have_as_many():
    def gpu(active, there=12):
        return Values((0, 0, 0), 0, {}, {}, links_active=active, links_there=there)

    assert (
        verification.link_faults({0: gpu(12), 1: gpu(12), 2: gpu(4, 6), 3: gpu(0), 4: gpu(None, 0)})
        == []
    )
    assert verification.link_faults({0: gpu(12), 1: gpu(10)}) == ["GPU 1: 2 NVLinks are down"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return library(tmp_path_factory.mktemp("nvml"))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"field__230": 1}, "recovery_action is 1"),
        ({"remap_pending": 1}, "remap_pending is 1"),
        ({"error": 15}, "GPU 0: "),
    ],
)
def test_the_program_asks_nvml_and_leaves_its_result(tmp_path, built, settings, fault):
    scenario = Scenario(tmp_path, built)
    scenario.gpu(0, **settings)
    result = tmp_path / "result"
    done = subprocess.run(
        [sys.executable, "-m", "health.verification", "--gpus", "1", "--result", str(result)],
        env=scenario.environment(), timeout=100, check=False,
    )  # fmt: skip
    told = json.loads(result.read_text())
    assert done.returncode == 1
    assert told["passed"] is False
    assert told["check"] == "nvml"
    assert fault in told["faults"][0]


@pytest.mark.slow
def test_gpus_that_cannot_compute_have_proven_nothing(tmp_path, built):
    """NVML is content, and there is no CUDA behind it."""
    result = tmp_path / "result"
    subprocess.run(
        [sys.executable, "-m", "health.verification", "--gpus", "1", "--result", str(result)],
        env=Scenario(tmp_path, built).environment(), timeout=100, check=False,
    )  # fmt: skip
    told = json.loads(result.read_text())
    assert (told["passed"], told["check"]) == (False, "compute")
