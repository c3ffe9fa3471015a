"""Programs for rungs: argument vectors and never a shell, with a deadline, ended in order."""

import sys
import time

import pytest

from clusterops.api.node_health import Rung
from clusterops.core.remediation_actions import Execute
from clusterops.operator.nodes_executor import DryRun, Programs

NASTY = "i; touch $(pwned) `x` && rm"
ORDER = Execute("k", Rung.REBOOT_NODE, NASTY, "b1", ("GPU-1", "GPU-2"), None)


def python(code: str, *arguments: str) -> Programs:
    return Programs({Rung.REBOOT_NODE: [sys.executable, "-c", code, *arguments]})


async def test_the_holes_of_the_vector_are_filled_and_nothing_is_given_to_a_shell(tmp_path):
    written = tmp_path / "arguments"
    code = f"import sys; open({str(written)!r}, 'w').write(repr(sys.argv[1:]))"
    programs = python(code, "--host={node}", "{gpus}", "{incident}", "{boot}", "{other}")
    assert await programs.execute("n1", ORDER, 60.0)
    assert written.read_text() == repr(["--host=n1", "GPU-1,GPU-2", NASTY, "b1", "{other}"])
    assert [p.name for p in tmp_path.iterdir()] == ["arguments"]


async def test_a_program_that_fails_or_is_not_there_has_not_carried_anything_out():
    assert not await python("raise SystemExit(3)").execute("n1", ORDER, 60.0)
    missing = Programs({Rung.REBOOT_NODE: ["/nowhere/at/all"]})
    assert not await missing.execute("n1", ORDER, 60.0)


async def test_a_program_that_hangs_is_ended_at_its_deadline():
    begin = time.monotonic()
    assert not await python("import time; time.sleep(600)").execute("n1", ORDER, 0.5)
    assert time.monotonic() - begin < 60.0


def test_only_rungs_with_a_program_can_be_carried_out():
    programs = python("pass")
    assert programs.can(Rung.REBOOT_NODE)
    assert not programs.can(Rung.RESET_GPU)
    assert not any(DryRun().can(rung) for rung in Rung)
    with pytest.raises(ValueError, match="no argument vector"):
        Programs({Rung.RESET_GPU: []})
