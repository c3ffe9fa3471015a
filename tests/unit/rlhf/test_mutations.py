"""Each named check is removed from a copy of the source: then its tests must fail."""

from pathlib import Path

import pytest
from support.rlhf_mutation import Check, NotFound, copy_without, outcome_of, without

ROOT = Path(__file__).resolve().parents[3]
UNIT = "tests/unit/rlhf"

pytestmark = pytest.mark.slow

CHECKS = [
    Check(
        "binding check",
        "rlhf/binding.py",
        "fetch",
        "graded.envelope.digests != row",
        f"{UNIT}/test_binding.py",
    ),
    Check(
        "fencing",
        "rlhf/reward_queue_grading.py",
        "_refusal",
        "envelope.attempt not in entry.live",
        f"{UNIT}/test_reward_queue_grading.py",
    ),
    Check(
        "an answer's digests",
        "rlhf/reward_queue_grading.py",
        "_refusal",
        "envelope.response_digest != entry.response_digest",
        f"{UNIT}/test_reward_queue_grading.py",
    ),
    Check(
        "strict order",
        "rlhf/reward_queue.py",
        "_deliverable",
        "batch != self.stream.delivered",
        f"{UNIT}/test_reward_queue.py",
    ),
    Check(
        "redraw keeping its slot",
        "rlhf/reward_queue.py",
        "_redraw",
        "heapq.heappush(self._again, each.seq)",
        f"{UNIT}/test_reward_queue_redraw.py",
        # What others do: the replacement goes to the end of the stream.
        instead="self.stream.add(self.stream.next_seq); ",
    ),
    Check(
        "redraw of the whole group",
        "rlhf/reward_queue_state.py",
        "redraw",
        "self.draws[group] = draw",
        f"{UNIT}/test_reward_queue_redraw.py",
    ),
    Check(
        "journal fsync",
        "rlhf/journal.py",
        "sync",
        "self.force()",
        f"{UNIT}/test_journal.py",
    ),
    Check(
        "fsync before the batch is handed out",
        "rlhf/queue_shell.py",
        "take",
        "self._sync()",
        f"{UNIT}/test_queue_shell.py",
    ),
    Check(
        "a grader's count of answers",
        "rlhf/graders/checking.py",
        "checked",
        "len(given) != len(samples)",
        f"{UNIT}/test_graders_checking.py",
    ),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name.replace(" ", "-"))
def test_without_the_check_its_tests_fail(check: Check, tmp_path: Path) -> None:
    copy_without(check, ROOT, tmp_path)
    result = outcome_of(check, tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert " failed" in result.stdout, "they fail, and not for want of a module"


def test_the_copy_with_its_checks_passes(tmp_path: Path) -> None:
    """So that the tests above fail for the check that is missing, and not for the copy."""
    check = CHECKS[0]
    copy_without(check, ROOT, tmp_path)
    whole = (ROOT / check.file).read_text(encoding="utf-8")
    (tmp_path / check.file).write_text(whole, encoding="utf-8")
    result = outcome_of(check, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_check_that_is_not_found_is_an_error() -> None:
    with pytest.raises(NotFound, match="0 statements"):
        without("def f():\n    g()\n", CHECKS[0])
