"""Each named check of blocks and scheduler is removed from a copy: then its tests must fail."""

from pathlib import Path

import pytest
from support.rlhf_mutation import Check, copy_without, outcome_of

ROOT = Path(__file__).resolve().parents[3]
UNIT = "tests/unit/rlhf_engine"
SCHEDULER = f"{UNIT}/test_scheduler.py"

pytestmark = pytest.mark.slow

CHECKS = [
    Check(
        "forgetting failed content",
        "rlhf/kv/scheduler.py",
        "commit",
        "forget=reason == 'failed'",
        SCHEDULER,
        instead="self.holdings.release(sequence)",
    ),
    Check(
        "forgetting a reused block's content",
        "rlhf/kv/blocks.py",
        "take",
        "self._forget(block)",
        f"{UNIT}/test_blocks.py",
    ),
    Check(
        "comparing tokens on a hit",
        "rlhf/kv/blocks.py",
        "find",
        "content.tokens != tuple",
        f"{UNIT}/test_blocks.py",
    ),
    Check(
        "keeping blocks of older weights to oneself",
        "rlhf/kv/holdings.py",
        "remember",
        "sequence.kv_version != version",
        SCHEDULER,
    ),
    Check(
        "the oldest is no victim",
        "rlhf/kv/scheduler.py",
        "_victim",
        "sequence is not oldest",
        SCHEDULER,
        instead="others = running",
    ),
    Check(
        "nobody passes who must be next",
        "rlhf/kv/scheduler.py",
        "_admit",
        "must_be_next",
        SCHEDULER,
    ),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name.replace(" ", "-"))
def test_without_the_check_its_tests_fail(check: Check, tmp_path: Path) -> None:
    copy_without(check, ROOT, tmp_path)
    result = outcome_of(check, tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert " failed" in result.stdout, "they fail, and not for want of a module"
