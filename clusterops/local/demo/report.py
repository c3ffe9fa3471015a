"""What a run of the demo measured: as JSON for machines, as a table for people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class JobReport:
    """One job of a chapter. `undisturbed_sha256` is of the same training run with nothing in its way."""

    name: str
    outcome: str
    attempts: int
    preemptions: int
    lost_steps: int
    notice_seconds: float
    final_loss: float | None
    weights_sha256: str
    undisturbed_sha256: str

    @property
    def equal(self) -> bool:
        """Whether the job ended with exactly the weights of the undisturbed run."""
        return bool(self.weights_sha256) and self.weights_sha256 == self.undisturbed_sha256


@dataclass(frozen=True)
class DemoReport:
    """One run. `peak_gpus` is the most GPUs held at one instant by the nodes' own timestamps."""

    elapsed_seconds: float
    eviction_to_preemptor_first_step_seconds: float
    peak_gpus: int
    quota_gpus: int
    jobs: Sequence[JobReport]

    def to_json(self) -> dict[str, Any]:
        """The object that is written to the report file."""
        return _camel_case(asdict(self))

    def problems(self) -> list[str]:
        """What did not go as it must; empty after a good run."""
        found = []
        for job in self.jobs:
            if job.outcome != "Succeeded":
                found.append(f"{job.name} ended as {job.outcome or 'unfinished'}")
            if not job.equal:
                found.append(f"{job.name} ended with other weights than the undisturbed run")
            if job.lost_steps:
                found.append(f"{job.name} lost {job.lost_steps} steps")
        if not any(job.preemptions for job in self.jobs):
            found.append("nothing was preempted")
        if self.peak_gpus > self.quota_gpus:
            found.append(f"{self.peak_gpus} GPUs were held at once, {self.quota_gpus} exist")
        return found


def _camel_case(fields: dict[str, Any]) -> dict[str, Any]:
    def renamed(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    return {
        renamed(name): [_camel_case(row) for row in value] if name == "jobs" else value
        for name, value in fields.items()
    }


COLUMNS = (
    "JOB",
    "OUTCOME",
    "ATTEMPTS",
    "PREEMPTED",
    "LOST",
    "NOTICE",
    "LOSS",
    "WEIGHTS",
    "UNDISTURBED",
    "SAME",
)


def rows(report: DemoReport) -> list[tuple[str, ...]]:
    """The table's cells, one row a job."""
    return [
        (
            job.name,
            job.outcome,
            str(job.attempts),
            str(job.preemptions),
            f"{job.lost_steps} step{'' if job.lost_steps == 1 else 's'}",
            f"{job.notice_seconds:.1f} s",
            "-" if job.final_loss is None else f"{job.final_loss:.4f}",
            job.weights_sha256[:8],
            job.undisturbed_sha256[:8],
            "yes" if job.equal else "NO",
        )
        for job in report.jobs
    ]
