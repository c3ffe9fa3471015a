"""What the operator counts, for Prometheus. No label holds a job's or user's name: all are bounded."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.core.observed import TrainingJob
from clusterops.core.transitions import Told

_CAUSES = frozenset(str(cause) for cause in Cause)
_REASONS = frozenset(str(reason) for reason in WaitReason)


class Metrics:
    """One registry; `jobs` gives all jobs at the time of a scrape."""

    def __init__(self, jobs: Callable[[], Iterable[TrainingJob]]) -> None:
        self._registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            "clusterops_operator_reconcile_seconds",
            "Time of one reconcile of a TrainingJob, API calls included.",
            registry=self._registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
        )
        self.heartbeats = Counter(
            "clusterops_operator_heartbeats",
            "Heartbeats by the status they were answered with.",
            ["status"],
            registry=self._registry,
        )
        self.attempts_ended = Counter(
            "clusterops_attempts_ended",
            "Ended attempts by cause, since this process started.",
            ["cause"],
            registry=self._registry,
        )
        for cause in Cause:
            self.attempts_ended.labels(cause=str(cause))
        self._registry.register(_Jobs(jobs))

    def told(self, told: Told) -> None:
        """Counts what events tell."""
        if told.reason in _CAUSES and told.message.startswith("attempt "):
            self.attempts_ended.labels(cause=told.reason).inc()

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Adds a gauge that is read at each scrape."""
        self._registry.register(_Gauge(name, about, value))

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)


class _Gauge(Collector):
    def __init__(self, name: str, about: str, value: Callable[[], float]) -> None:
        self._name = name
        self._about = about
        self._value = value

    def collect(self) -> Iterable[Metric]:
        """Reads the value."""
        yield GaugeMetricFamily(self._name, self._about, value=self._value())


class _Jobs(Collector):
    """Counts jobs by phase and by waiting reason at each scrape."""

    def __init__(self, jobs: Callable[[], Iterable[TrainingJob]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        """Counts anew: nothing can drift."""
        phases = dict.fromkeys(Phase, 0)
        reasons = dict.fromkeys(WaitReason, 0)
        gpus = 0
        for job in self._jobs():
            phases[job.status.phase] += 1
            if job.status.reason in _REASONS:
                reasons[WaitReason(job.status.reason)] += 1
            if job.status.open_attempt is not None:
                gpus += job.status.gpus
        by_phase = GaugeMetricFamily("clusterops_jobs", "TrainingJobs by phase.", labels=["phase"])
        for phase, count in phases.items():
            by_phase.add_metric([str(phase)], count)
        yield by_phase
        by_reason = GaugeMetricFamily(
            "clusterops_jobs_waiting", "TrainingJobs by reason of waiting.", labels=["reason"]
        )
        for reason, count in reasons.items():
            if reason is not WaitReason.NONE:
                by_reason.add_metric([str(reason)], count)
        yield by_reason
        yield GaugeMetricFamily("clusterops_job_gpus", "GPUs held by running attempts.", value=gpus)
