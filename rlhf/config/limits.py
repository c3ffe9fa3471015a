"""What follows from a configuration: sizes that nobody has written down but everybody feels."""

from typing import NamedTuple

from rlhf.config.sections import Absence, Absent, RunConfig
from rlhf.identity import Shape
from rlhf.missing import MissingPolicy, Reason, Rule, Then
from rlhf.reward_queue_types import Hedge, Limits


class Derived(NamedTuple):
    """One consequence: its name, its value, and why."""

    name: str
    value: str
    because: str


def stream_shape(config: RunConfig, run_id: str) -> Shape:
    """The shape of the run's stream of samples."""
    return Shape(
        run_id=run_id,
        seed=config.seed,
        batch_size=config.rollout.batch,
        group_size=config.rollout.group,
        lag=config.queue.lag,
        max_draws=config.queue.max_draws,
    )


def queue_limits(config: RunConfig) -> Limits:
    """Deadlines, hedging, and what is done about missing rewards."""
    queue = config.queue
    return Limits(
        grading_seconds=queue.grading_seconds,
        rollout_seconds=queue.rollout_seconds,
        stall_seconds=queue.stall_seconds,
        hedge=Hedge(queue.hedge_percentile, budget=queue.hedge_budget),
        missing=MissingPolicy(
            timed_out=_rule(config, "TimedOut"),
            grader_error=_rule(config, "GraderError"),
            refused=_rule(config, "Refused"),
            invalid_answer=_rule(config, "InvalidAnswer"),
            no_response=_rule(config, "NoResponse"),
        ),
    )


def _rule(config: RunConfig, reason: Absent) -> Rule:
    """The rule for a reason: its own, else the queue's; who refuses is not asked again by default."""
    queue = config.queue
    own = queue.missing.get(reason, Absence())
    usual = 0 if reason == "Refused" else queue.retries
    return Rule(usual if own.retries is None else own.retries, Then(own.then or queue.then))


def derived(config: RunConfig) -> list[Derived]:
    """The consequences worth knowing before a run."""
    rollout, ppo, queue = config.rollout, config.ppo, config.queue
    capacity = stream_shape(config, "x").capacity
    micro = ppo.micro_batch or -(-rollout.batch // ppo.minibatches)
    attempts = queue_limits(config).missing.rule(Reason.TIMED_OUT).retries + 1
    slowest = attempts * queue.grading_seconds * queue.max_draws
    episodes = rollout.batch * config.steps
    return [
        Derived("queue capacity", f"{capacity} samples", "(queue.lag + 1) x rollout.batch"),
        Derived("prompts a batch", f"{rollout.batch // rollout.group}", "batch / group"),
        Derived("episodes", f"{episodes}", "rollout.batch x steps"),
        Derived(
            "optimizer steps",
            f"{ppo.epochs * ppo.minibatches * config.steps}",
            "ppo.epochs x ppo.minibatches x steps",
        ),
        Derived("rows in memory at once", f"{min(micro, rollout.batch)}", "ppo.micro_batch"),
        Derived("longest prompt", f"{config.longest_prompt} tokens", "context - max_new_tokens"),
        Derived(
            "staleness",
            f"{queue.lag} versions",
            "batch k is sampled by version max(0, k - queue.lag), whatever the timing",
        ),
        Derived(
            "a slot's longest wait for its reward",
            f"{slowest:g} s",
            "attempts x queue.grading_seconds x queue.max_draws",
        ),
        Derived(
            "step time at best",
            "max(generation, grading / grader.workers, training)"
            if queue.lag
            else "generation + grading + training",
            "queue.lag",
        ),
    ]
