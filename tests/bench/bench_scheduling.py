"""How long a round of scheduling takes, and how many decisions a second that is.

    python tests/bench/bench_scheduling.py

10,000 workloads wait and 1,000 run in 20 queues of one cohort. Three cases: nothing can be done
(the usual round: something changed elsewhere), everything was just released (one round admits as
much as fits), and an urgent job in each queue needs victims. The baseline, measured in the same
run, is the least any scheduler must do: sort the waiting and add up who fits, without a tree of
quota, flavors or victims. The ratio is how many times that a round takes.
"""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.scheduling_world import ANY, GPU, NOW, job, queue, running, world  # noqa: E402 - the path comes first

from clusterops.scheduling import cycle  # noqa: E402 - the path comes first
from clusterops.scheduling.decisions import Admit, Preempt  # noqa: E402 - the path comes first
from clusterops.scheduling.objects import Workload  # noqa: E402 - the path comes first
from clusterops.scheduling.snapshot import Snapshot  # noqa: E402 - the path comes first

QUEUES, PENDING, RUNNING, GPUS_EACH = 20, 10_000, 1_000, 200


def pending(chance: random.Random, shapes: int) -> list[Workload]:
    """Waiting workloads; `shapes` bounds how many different demands there are."""
    return [
        job(
            f"w{number}",
            1 + number % shapes,
            queue=f"q{chance.randrange(QUEUES)}",
            priority=chance.randrange(3) * 1000,
            created=float(number),
        )
        for number in range(PENDING)
    ]


def holders(chance: random.Random) -> list[Workload]:
    """Running workloads that fill every queue."""
    each = QUEUES * GPUS_EACH // RUNNING
    return [
        running(
            f"r{number}",
            each,
            queue=f"q{number % QUEUES}",
            priority=2000 + chance.randrange(3),
            since=float(number),
        )
        for number in range(RUNNING)
    ]


def build(workloads: list[Workload]) -> Snapshot:
    queues = [queue(f"q{n}", GPUS_EACH, cohort="co", preemption=ANY) for n in range(QUEUES)]
    return world(queues, workloads)


def baseline(workloads: list[Workload]) -> int:
    """Sort and add up: what no scheduler can do without."""
    free = {f"q{n}": GPUS_EACH for n in range(QUEUES)}
    admitted = 0
    for each in sorted(workloads, key=lambda w: (-w.priority, w.created, w.uid)):
        asked = sum(pods.count * pods.requests[GPU] for pods in each.pod_sets)
        if asked <= free[each.queue]:
            free[each.queue] -= asked
            admitted += 1
    return admitted


def best_of(times: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def report(name: str, where: Snapshot, base_seconds: float) -> None:
    seconds = best_of(3, lambda: cycle.decide(where, NOW))
    decisions = cycle.decide(where, NOW)
    admitted = sum(isinstance(each, Admit) for each in decisions)
    preempted = sum(isinstance(each, Preempt) for each in decisions)
    print(
        f"{name:34} {seconds * 1000:9.1f} ms/round  {len(decisions):6} decisions "
        f"({admitted} admitted, {preempted} preempted)  {len(decisions) / seconds:9.0f} /s  "
        f"{seconds / base_seconds:6.1f} x baseline"
    )


def main() -> None:
    chance = random.Random(7)
    waiting, held = pending(chance, 8), holders(chance)
    base_seconds = best_of(3, lambda: baseline(waiting))
    print(f"{'baseline (sort and add up)':34} {base_seconds * 1000:9.1f} ms")
    seconds = best_of(3, lambda: build([*waiting, *held]))
    print(f"{'snapshot of 11,000 workloads':34} {seconds * 1000:9.1f} ms")
    report("nothing to do, 8 shapes", build([*waiting, *held]), base_seconds)
    report(
        "nothing to do, 2,000 shapes",
        build([*pending(random.Random(7), 2000), *held]),
        base_seconds,
    )
    report("everything released", build(waiting), base_seconds)
    urgent = [job(f"u{n}", 40, queue=f"q{n}", priority=9000) for n in range(QUEUES)]
    report("an urgent job in each queue", build([*waiting, *held, *urgent]), base_seconds)


if __name__ == "__main__":
    main()
