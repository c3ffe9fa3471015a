"""The queue's half of RLHF needs neither torch nor ray nor numpy, and nothing else of ours."""

import subprocess
import sys

import pytest

LIGHT = [
    "rlhf.identity",
    "rlhf.reward_queue",
    "rlhf.queue_shell",
    "rlhf.journal",
    "rlhf.journal_replay",
    "rlhf.binding",
    "rlhf.canaries",
    "rlhf.grading_workers",
    "rlhf.graders.processes",
    "rlhf.graders.http_grader",
    "rlhf.graders.helpful_harmless",
    "rlhf.doctor.diagnosis",
]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "heavy = {'torch', 'ray', 'numpy', 'pydantic', 'clusterops', 'kubernetes'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]"


def test_the_state_machine_has_no_clock_and_does_no_input_or_output() -> None:
    code = (
        "import sys, rlhf.reward_queue\n"
        "print(sorted({'asyncio', 'socket', 'random', 'subprocess', 'pathlib'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert result.stdout.strip() == "[]"
