"""What a run of the demo measured: as JSON for machines, as a table for people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol


class Report(Protocol):
    """What the command line asks of a chapter's report."""

    def to_json(self) -> dict[str, Any]:
        """The object that is written to the report file."""
        ...

    def problems(self) -> list[str]:
        """What did not go as it must; empty after a good run."""
        ...

    def table(self) -> list[tuple[str, ...]]:
        """Headings, then rows."""
        ...

    def closing(self) -> str:
        """The last sentence."""
        ...


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

    def table(self) -> list[tuple[str, ...]]:
        """One row a job."""
        return [COLUMNS, *rows(self)]

    def closing(self) -> str:
        """How long the urgent job waited, and that nothing was given twice."""
        return (
            "from eviction to the urgent job's first step: "
            f"{self.eviction_to_preemptor_first_step_seconds:.1f} s;"
            f" at most {self.peak_gpus} of {self.quota_gpus} GPUs were held at once;"
            f" the demo took {self.elapsed_seconds:.0f} s"
        )


@dataclass(frozen=True)
class FaultReport:
    """One run of the chapter "faults". Steps are those of the attempt that the fault ended."""

    elapsed_seconds: float
    job: str
    outcome: str
    node: str
    resumed_on: str
    cause: str
    line_to_verdict_seconds: float
    line_to_resumed_seconds: float
    last_step: int
    saved_step: int
    resumed_step: int
    tickets: int
    given_back: bool
    state_sha256: str
    undisturbed_sha256: str

    @property
    def lost_steps(self) -> int:
        """Steps that were done twice."""
        return max(0, self.last_step - self.resumed_step)

    def to_json(self) -> dict[str, Any]:
        """The object that is written to the report file."""
        return {**_camel_case(asdict(self)), "lostSteps": self.lost_steps}

    def problems(self) -> list[str]:
        """What did not go as it must; empty after a good run."""
        checks = [
            (self.outcome == "Succeeded", f"{self.job} ended as {self.outcome or 'unfinished'}"),
            (self.cause == "NodeFault", f"the attempt ended for {self.cause}, not for its node"),
            (self.resumed_on != self.node, f"{self.job} went on on the broken node"),
            (
                0 < self.saved_step <= self.resumed_step,
                f"{self.job} went on at step {self.resumed_step}, and {self.saved_step} was saved",
            ),
            (self.tickets == 1, f"{self.tickets} tickets were written, one was due"),
            (self.given_back, f"{self.node} was not given back"),
            (
                bool(self.state_sha256) and self.state_sha256 == self.undisturbed_sha256,
                f"{self.job} ended in another state than the undisturbed run",
            ),
        ]
        return [told for true, told in checks if not true]

    def table(self) -> list[tuple[str, ...]]:
        """One row: what the fault cost the job."""
        return [
            (
                "JOB",
                "BROKEN",
                "WENT ON",
                "AT STEP",
                "SAVED",
                "LOST",
                "LINE TO VERDICT",
                "LINE TO RESUMED",
                "TICKETS",
                "SAME",
            ),
            (
                self.job,
                self.node,
                self.resumed_on,
                str(self.last_step),
                str(self.saved_step),
                f"{self.lost_steps} step{'' if self.lost_steps == 1 else 's'}",
                f"{self.line_to_verdict_seconds:.1f} s",
                f"{self.line_to_resumed_seconds:.1f} s",
                str(self.tickets),
                "yes" if self.state_sha256 == self.undisturbed_sha256 else "NO",
            ),
        ]

    def closing(self) -> str:
        """What became of the node."""
        fate = "was given back when it had proven itself" if self.given_back else "is still out"
        return f"{self.node} {fate}; the demo took {self.elapsed_seconds:.0f} s"


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
