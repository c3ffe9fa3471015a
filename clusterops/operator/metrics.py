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
_NODE_CAUSES = (Cause.NODE_FAULT, Cause.NODE_LOST)


class Metrics:
    """One registry; `jobs` gives all jobs at the time of a scrape."""

    def __init__(self, jobs: Callable[[], Iterable[TrainingJob]]) -> None:
        self._registry = self.registry = CollectorRegistry()
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
        self._lost_steps = Counter(
            "clusterops_lost_steps",
            "Steps that are to be done again, by what ended the attempt, as far as they are known.",
            ["cause"],
            registry=self._registry,
        )
        self._lost_unknown = Counter(
            "clusterops_attempts_ended_steps_unknown",
            "Attempts of which nobody knows how many steps are to be done again: none was reported.",
            ["cause"],
            registry=self._registry,
        )
        self._lost_gpu_seconds = Counter(
            "clusterops_lost_gpu_seconds",
            "GPU time of the work that is to be done again; all of an attempt that reported no steps.",
            ["cause"],
            registry=self._registry,
        )
        self._fault_to_running = Histogram(
            "clusterops_fault_to_running_seconds",
            "From the moment a job was to leave a faulty or lost node until all its ranks run again.",
            registry=self._registry,
            buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600),
        )
        self._faulted: dict[str, float] = {}
        for cause in Cause:
            self.attempts_ended.labels(cause=str(cause))
            self._lost_steps.labels(cause=str(cause))
            self._lost_unknown.labels(cause=str(cause))
            self._lost_gpu_seconds.labels(cause=str(cause))
        self._registry.register(_Jobs(jobs))

    def job_changed(
        self, before: TrainingJob | None, after: TrainingJob | None, now: float
    ) -> None:
        """Counts what an attempt's end cost, and how long a fault kept a job. `now` is monotonic."""
        if before is None:
            return
        uid = before.metadata.uid
        if after is None or after.status.phase.final:
            self._faulted.pop(uid, None)
        if after is None:
            return
        newest = after.status.attempts[-1] if after.status.attempts else None
        known = {attempt.number: attempt for attempt in before.status.attempts}
        if newest is None or newest == known.get(newest.number):
            return
        if newest.cause in _NODE_CAUSES and not after.status.phase.final:
            self._faulted.setdefault(uid, now)
        elif newest.cause is None and newest.started_at is not None and uid in self._faulted:
            self._fault_to_running.observe(max(0.0, now - self._faulted.pop(uid)))
        was = known.get(newest.number)
        if newest.ended_at is not None and (was is None or was.ended_at is None):
            cause = str(newest.cause)
            if newest.lost_steps is None:
                self._lost_unknown.labels(cause=cause).inc()
            else:
                self._lost_steps.labels(cause=cause).inc(newest.lost_steps)
            self._lost_gpu_seconds.labels(cause=cause).inc(newest.lost_gpu_seconds or 0.0)

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
