"""The engine's report as Prometheus reads it."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rlhf.engine_stats import EngineReport

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "clusterops_rollout_"


class _Reported(Collector):
    """One report."""

    def __init__(self, report: EngineReport) -> None:
        self._report = report

    def collect(self) -> Iterable[Metric]:
        """The families of metrics."""
        report = self._report
        memory, work = report.memory, report.work
        for name, text, value in (
            ("requests_waiting", "Requests that wait for a seat.", report.waiting),
            ("requests_running", "Requests that compute.", report.running),
            ("kv_capacity_tokens", "Places in the cache.", memory.capacity),
            ("kv_live_tokens", "Tokens held, shared ones once.", memory.live),
            ("kv_reserved_tokens", "Places in blocks that somebody holds.", memory.reserved),
            ("kv_slack_tokens", "Empty places in last blocks.", memory.slack),
            ("kv_copied_tokens", "Tokens that siblings hold twice.", memory.copied),
            ("kv_unreferenced_tokens", "Tokens kept only to be found again.", memory.unreferenced),
            ("kv_shared_tokens", "Places saved by sharing blocks.", memory.saved_by_sharing),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=value)
        for name, text, value in (
            ("iterations", "Steps of the engine.", work.iterations),
            ("tokens_computed", "Tokens through the model.", work.computed),
            ("tokens_recomputed", "Of these, again after a preemption.", work.recomputed),
            ("tokens_found", "Tokens taken from earlier or sibling keys.", work.found),
            ("tokens_generated", "Tokens drawn.", work.generated),
            ("tokens_stale_kv", "Tokens drawn over keys of older weights.", work.stale),
            ("preemptions", "Sequences that gave up their blocks.", work.preemptions),
            ("evictions", "Findable blocks that were overwritten.", work.evictions),
        ):
            yield CounterMetricFamily(_PREFIX + name, text, value=value)
        ends = CounterMetricFamily(_PREFIX + "finished", "Ended requests.", labels=["reason"])
        for reason, count in sorted(report.finished.items()):
            ends.add_metric([reason], count)
        yield ends
        stages = GaugeMetricFamily(
            _PREFIX + "stage_seconds", "Time of a stage of a step.", labels=["stage", "quantile"]
        )
        for stage, summary in report.stages.items():
            for quantile, seconds in (
                ("0.5", summary.p50),
                ("0.99", summary.p99),
                ("1", summary.maximum),
            ):
                stages.add_metric([stage, quantile], seconds)
        yield stages


def exposition(report: EngineReport) -> bytes:
    """The text of a scrape."""
    registry = CollectorRegistry()
    registry.register(_Reported(report))
    return generate_latest(registry)
