"""A run from its folder to its last step: what is built, what is resumed, what is written down."""

import time
from collections.abc import Mapping

import torch

from clusterops import train
from rlhf import building, loop
from rlhf.binding import BindingError
from rlhf.config.sections import RunConfig
from rlhf.graders.functions import BadFunction
from rlhf.model.building import build
from rlhf.model.huggingface import ModelUnavailable
from rlhf.ppo.update import RatioNotOne
from rlhf.progress_display import Display
from rlhf.report import RunningReport
from rlhf.reward_queue_types import Batch
from rlhf.rollout_check import RolloutDrifts
from rlhf.run_folder import RunFolder
from rlhf.stream import RewardStream, StreamFailed
from rlhf.tasks.task import TaskInvalid
from rlhf.trackers import Tracker
from rlhf.trainer import RewardWrong, Trainer, Updated
from rlhf.warm_up import WarmUp
from rlhf.weights import Snapshots, SnapshotUnreadable, tensors_sha256

FAILURES: tuple[type[Exception], ...] = (
    BadFunction,
    BindingError,
    ModelUnavailable,
    RatioNotOne,
    RewardWrong,
    RolloutDrifts,
    SnapshotUnreadable,
    StreamFailed,
    TaskInvalid,
    train.TrainError,
)
"""What ends a run with a message that says all; anything else is a fault of ours, with its traceback."""

_IN_MANIFEST = ("objective/scores", "objective/kl")


def make_deterministic(config: RunConfig) -> None:
    """The same numbers in every run of these settings on this machine."""
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.model.threads)
    if config.model.device == "cpu":
        torch.use_deterministic_algorithms(True)


def run(config: RunConfig, folder: RunFolder, display: Display, trackers: list[Tracker]) -> None:
    """Trains to the last step, or until the job is told to leave.

    Raises:
        StreamFailed, BindingError, RewardWrong, RatioNotOne, RolloutDrifts: the run can't go on.
        train.TrainError, train.Leave: see `clusterops.train`.
        TaskInvalid, BadFunction, ModelUnavailable: it can't begin.
    """
    make_deterministic(config)
    task = building.task(config)
    building.grader(config, task)  # a wrong one is better told now than by the pipeline
    for note in building.notes(config, task):
        display.say(note)
    vocabulary = task.vocabulary
    trainer = Trainer(
        build(config.model, vocabulary.size, config.seed),
        config,
        vocabulary.stop_tokens,
        audit=building.audit(config, task),
        canaries=building.canaries(config),
    )
    warm_up = WarmUp(trainer.policy, task, config)
    stream = RewardStream(config, folder)
    snapshots = Snapshots(folder.weights)
    saves = config.checkpoints
    with train.session(
        total_steps=config.steps,
        checkpoint_dir=folder.checkpoints,
        save_every_steps=saves.every_steps,
        save_every_seconds=saves.every_seconds,
        keep=saves.keep,
    ) as session:
        resumed = session.resume(
            policy=trainer.policy,
            reference=trainer.reference,
            optimizer=trainer.optimizer,
            kl=trainer.kl,
            warm_up=warm_up,
            stream=stream,
        )
        folder.rewind(resumed.step)
        if resumed.step:
            display.say(f"resumed after step {resumed.step} of {config.steps}")
        prepare(session, trainer, warm_up, display)
        if session.finished:
            return

        def publish(version: int) -> None:
            snapshots.publish(version, trainer.policy.state_dict())

        publish(resumed.step)
        with stream.opened():
            record = Recorder(config, folder, session, stream, snapshots, display, trackers)
            steps = stream.batches(session)
            if config.queue.lag == 0:
                loop.synchronous(steps, trainer, stream, publish, record)
            else:
                loop.asynchronous(steps, trainer, stream, publish, record, config.queue.lag)
        write_result(folder, session, trainer, stream)


def write_result(
    folder: RunFolder, session: train.Session, trainer: Trainer, stream: RewardStream
) -> None:
    """`result.json` beside the checkpoints: what two equal runs have in common."""
    folder.write_result(
        session.directory or folder.checkpoints,
        {
            "job": "rlhf",
            "steps": session.step,
            "finalReward": session.metrics.get("objective/scores"),
            "weightsSha256": tensors_sha256(trainer.policy.state_dict()),
            "orderDigest": stream.order_digest,
        },
    )


def prepare(session: train.Session, trainer: Trainer, warm_up: WarmUp, display: Display) -> None:
    """The warm-up, as far as it is not done; then the policy is its own reference."""
    if warm_up.finished:
        return
    display.say(f"warm-up: {warm_up.steps - warm_up.done} steps of imitation")
    with session.section("warm-up") as section:
        loss = warm_up.run(section.poll)
        trainer.become_reference()
        display.say(f"warm-up done, loss {loss:.4f}")


class Recorder:
    """Writes down each step, tells the session, and lets go of what nobody needs any more."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        session: train.Session,
        stream: RewardStream,
        snapshots: Snapshots,
        display: Display,
        trackers: list[Tracker],
    ) -> None:
        self._config = config
        self._folder = folder
        self._session = session
        self._stream = stream
        self._snapshots = snapshots
        self._display = display
        self._trackers = trackers
        self._report = RunningReport(folder, config.steps)
        self._durable: list[int] = []
        self._ended_at = time.monotonic()

    def __call__(self, step: int, batch: Batch, updated: Updated) -> None:
        """One step."""
        metrics = updated.metrics | self._queue_metrics(batch)
        if self._config.reports.samples:
            self._folder.append_samples(updated.rows)
        self._folder.append_metrics({"step": step, **metrics})
        for tracker in self._trackers:
            tracker.log(step, metrics)
        self._display.step(step, metrics)
        self._report.step(step + 1)
        self._session.report(**{name: metrics[name] for name in _IN_MANIFEST})
        self._let_go(batch)

    def _queue_metrics(self, batch: Batch) -> dict[str, float]:
        now = time.monotonic()
        seconds, self._ended_at = now - self._ended_at, now
        delivery = self._stream.last
        assert delivery is not None
        latencies = sorted(one.answered_at - one.claimed_at for one in batch.samples)
        found = {
            "queue/depth": float(delivery.depth),
            "queue/grading_p50_seconds": latencies[len(latencies) // 2],
            "queue/grading_max_seconds": latencies[-1],
            "queue/redrawn": float(sum(one.envelope.draw > 0 for one in batch.samples)),
            "perf/step_seconds": seconds,
            "perf/wait_seconds": self._stream.waited_seconds,
            "perf/rollout_seconds": delivery.rollout_seconds,
            "perf/tokens_per_second": delivery.generated_tokens / max(seconds, 1e-9),
        }
        return found | _named(delivery.counts) | engine_metrics(delivery.work)

    def _let_go(self, batch: Batch) -> None:
        """Snapshots that rollout is done with, but for the one that a replay of this step's samples
        needs; journal that no checkpoint kept can need.
        """
        delivery, durable = self._stream.last, self._session.durable_step
        if delivery is not None:
            self._snapshots.retire(below=min(delivery.needed_from, batch.policy_version))
        if durable is None or durable in self._durable:
            return
        self._durable.append(durable)
        keep = self._config.checkpoints.keep
        if len(self._durable) > keep:
            self._durable = self._durable[-keep:]
            self._stream.compact(self._durable[0])


def engine_metrics(work: Mapping[str, float]) -> dict[str, float]:
    """How well the rollout engine used its memory and its time, from what it has counted."""
    if not work:
        return {}
    iterations, computed = max(work["iterations"], 1.0), max(work["computed"], 1.0)
    return {
        "rollout/iterations": work["iterations"],
        "rollout/running": work["running"] / iterations,
        "rollout/kv_waste": 1.0 - work["live"] / max(work["reserved"], 1.0),
        "rollout/preemptions": work["preemptions"],
        "rollout/preemption_tax": work["recomputed"] / computed,
        "rollout/shared_tokens": work["found"],
    }


def _named(counts: Mapping[str, int]) -> dict[str, float]:
    return {f"queue/{name}": float(count) for name, count in sorted(counts.items())}
