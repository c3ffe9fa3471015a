"""The daemon's metrics as families. Pure: everything shown is handed in."""

from collections.abc import Iterator, Mapping

from health.actions import Standing
from health.exposition import Family, Sample, family
from health.nvml_messages import Device
from health.verdict.node import NodeVerdict

PREFIX = "clusterops_health"


def of_verdict(verdict: NodeVerdict) -> Iterator[Family]:
    """How the node and each GPU stand, and how often each code was seen."""
    yield Family(
        f"{PREFIX}_node_standing", "gauge", "1 for how the node stands, 0 for the other words.",
        tuple(
            Sample((("standing", each.value),), float(verdict.standing is each))
            for each in Standing
        ),
    )  # fmt: skip
    yield Family(
        f"{PREFIX}_gpu_standing", "gauge", "How a GPU stands: 0 Healthy, growing with the action.",
        tuple(
            Sample((("gpu", str(gpu.device)), ("uuid", gpu.uuid or "")),
                   float(tuple(Standing).index(gpu.standing)))
            for gpu in verdict.gpus
        ),
    )  # fmt: skip
    yield family(f"{PREFIX}_open_incidents", "gauge", "Incidents that are open.", len(verdict.open))
    faults = {code: count for code, count in verdict.counts.items() if ":" in code}
    yield Family(
        f"{PREFIX}_faults_total", "counter", "Reports of each code within the kept history.",
        tuple(Sample((("code", code),), float(count)) for code, count in faults.items()),
    )  # fmt: skip
    yield Family(
        f"{PREFIX}_monitoring_gaps_total", "counter",
        "Faults that a source should have told and did not.",
        tuple(Sample((("source", source),), float(n)) for source, n in verdict.gaps.items()),
    )  # fmt: skip


def of_counts(counts: Mapping[str, int]) -> Family:
    """Records read, lost, forged, malformed and passed over, since the ledger began."""
    return Family(
        f"{PREFIX}_records_total", "counter", "Records of the kernel's log, by what became of them.",
        tuple(Sample((("what", name),), float(count)) for name, count in sorted(counts.items())),
    )  # fmt: skip


def of_gpus(expected: int, answering: int) -> Family:
    """How many GPUs there should be and are: of one that is gone, every other series ends silently."""
    return Family(
        f"{PREFIX}_gpus", "gauge", "GPUs that should be there, and that answer NVML.",
        (
            Sample((("state", "expected"),), float(expected)),
            Sample((("state", "answering"),), float(answering)),
        ),
    )  # fmt: skip


def of_counters(counters: Mapping[Device, Mapping[str, int]]) -> Family:
    """Counters and margins that NVML gave, by GPU."""
    return Family(
        f"{PREFIX}_nvml_value", "gauge", "Counters and margins of each GPU, as NVML gives them.",
        tuple(
            Sample(
                (("gpu", f"{device[0]:04x}:{device[1]:02x}:{device[2]:02x}.0"), ("name", name)),
                float(value),
            )
            for device, values in sorted(counters.items())
            for name, value in sorted(values.items())
        ),
    )  # fmt: skip
