"""The same snapshot gives byte-equal decisions whatever the hash seed of the process."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from clusterops.scheduling.explain import explain
from clusterops.scheduling.objects import Preemption
from support.scheduling_world import NOW, job, queue, running, transcript, world
greedy = Preemption("LowerOrNewerEqualPriority", "Any", "LowerPriority", 50)
queues = [queue(f"q{{n}}", {{"b": 7, "a": 5, "c": 3}}, cohort=f"co{{n % 3}}", preemption=greedy)
          for n in range(9)]
work = [running(f"r{{n}}", n % 4 + 1, queue=f"q{{n % 9}}", flavor="abc"[n % 3], priority=n % 5)
        for n in range(40)]
work += [job(f"w{{n}}", n % 6 + 1, queue=f"q{{n * 7 % 9}}", priority=n * 11 % 13) for n in range(60)]
where = world(queues, work)
print(transcript(where))
for each in where.pending.values():
    print(explain(where, each, NOW).sentence)
"""


def decisions_under(seed: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(tests=str(TESTS))],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout


def test_three_hash_seeds_give_the_same_bytes() -> None:
    first = decisions_under("0")
    assert first.count(b"\n") > 60
    assert decisions_under("1") == first
    assert decisions_under("4242") == first
