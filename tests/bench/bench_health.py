"""How right the verdicts on real lines are, and how many lines a second are parsed and folded.

    python tests/bench/bench_health.py

First the confusion matrices over the golden lines, each alone and in its context. Then logs in which
every line is a report: seconds of one core (CPU time) from text to history, with the verdict. The
baseline, measured in the same run, is what any reader does at least: decode the line and find code
and address by one expression. The ratio is how many times that the whole takes. Last, what memory the
log's path takes in a process of its own.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from support import health_golden  # noqa: E402 - the path comes first

from health import classify, shipped  # noqa: E402 - the path comes first
from health.verdict.node import judge_node  # noqa: E402 - the path comes first

LINES = 50_000
BASELINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-f:]+)\): (\d+)")


def uptime(number: int) -> str:
    return f"[{6_781_741 + number / LINES:.6f}] "


def mmu_faults(number: int) -> str:
    return (
        f"{uptime(number)}NVRM: Xid (PCI:0000:{number % 8 + 16:x}:00): 31, pid={number}, name=python, "
        f"Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ "
        f"0x7f29_{number:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )


def teardown(number: int) -> str:
    return (
        f"Aug 10 15:{number // 6000:02d}:{number // 100 % 60:02d} host kernel: NVRM: Xid "
        f"(PCI:0000:{number % 8 + 16:x}:00): 45, pid={number}, name=python, Ch {number % 64:08x}"
    )


def memory_storm(number: int) -> str:
    return f"{uptime(number)}NVRM: Xid (PCI:0000:37:00): 95, pid=5519, Uncontained: FBHUB. RST: Yes, D-RST: No"


def links(number: int) -> str:
    return (
        f"4,{number},{6_781_741_000_000 + 20 * number},-;NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP "
        f"Fatal XC1 i0 Link {number % 18:02d} (0x00000082 0x00000040 0x0 0x0 0x0 0x0)"
    )


def every_code(number: int) -> str:
    return f"{uptime(number)}NVRM: Xid (PCI:0000:{number % 8 + 16:x}:00): {number % 176 + 1}, pid=7, name=x, Ch 8"


CASES: dict[str, Callable[[int], str]] = {
    "MMU faults (31)": mmu_faults,
    "teardown (45), syslog": teardown,
    "memory storm (95)": memory_storm,
    "NVLink5 (145), kmsg": links,
    "every code in turn": every_code,
}


def cpu_seconds(times: int, work: Callable[[], object]) -> float:
    """CPU seconds of the fastest run."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def baseline(raw: list[bytes]) -> int:
    return sum(BASELINE.search(line.decode("utf-8", "replace")) is not None for line in raw)


def whole(raw: list[bytes]) -> object:
    policy = shipped.policy()
    judge = classify.judge_for(shipped.catalogue(), None, policy)
    decoded: Iterator[str] = (line.decode("utf-8", "replace") for line in raw)
    return judge_node(classify.folded(decoded, judge, policy))


MEMORY = """
import re, sys
sys.path.insert(0, sys.argv[1])
from health import classify, shipped
from health.verdict.node import judge_node
policy = shipped.policy()
judge = classify.judge_for(shipped.catalogue(), None, policy)
judge_node(classify.folded((line.rstrip() for line in sys.stdin), judge, policy))
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def peak_mib() -> float:
    """Largest resident memory of a process that folds 200,000 lines, in MiB."""
    log = "\n".join(map(mmu_faults, range(200_000)))
    command = [sys.executable, "-c", MEMORY, str(ROOT)]
    ran = subprocess.run(command, input=log, capture_output=True, text=True, check=True)
    return float(ran.stdout)


def main() -> None:
    print(health_golden.report())
    print(
        f"{'log of ' + format(LINES, ',') + ' lines':28}{'lines/s':>10}{'baseline':>12}{'ratio':>8}"
    )
    for name, line in CASES.items():
        raw = [line(number).encode() for number in range(LINES)]
        mine, least = (
            cpu_seconds(5, lambda raw=raw: whole(raw)),
            cpu_seconds(5, lambda raw=raw: baseline(raw)),
        )
        print(f"{name:28}{LINES / mine:>10,.0f}{LINES / least:>12,.0f}{mine / least:>8.1f}")
    print(f"\nlargest resident memory while folding 200,000 lines: {peak_mib():.1f} MiB")


if __name__ == "__main__":
    main()
