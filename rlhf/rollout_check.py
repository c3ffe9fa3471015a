"""Does rollout sample from the policy that is trained? Some tokens are scored again to see.

Where the very weights that are about to be trained have drawn a batch, every log-probability must
come out again: with queue.lag=0 that is each batch, else the first one.
"""

import torch

from rlhf import engine_guard
from rlhf.config.sections import RunConfig
from rlhf.experience import Prepared
from rlhf.model.language import LanguageModel
from rlhf.model.policy import evaluate
from rlhf.reward_queue_types import Batch


class RolloutDrifts(Exception):
    """Rollout reports other log-probabilities than the trainer computes with the same weights."""


def check(
    batch: Batch, prepared: Prepared, policy: LanguageModel, config: RunConfig
) -> dict[str, float]:
    """Metrics of the check; none where the policy has moved on since the batch was sampled.

    Raises:
        RolloutDrifts: names the cause as far as it shows.
    """
    checks, loaded = config.checks, prepared.loaded
    if batch.policy_version != batch.number or not checks.guard_share:
        return {}
    names = [str(graded.envelope.sample_id) for graded in loaded.graded]
    lengths = [len(one.response_ids) for one in loaded.responses]
    rows = engine_guard.chosen(names, lengths, checks.guard_share, config.seed)
    packed = loaded.packed.rows(torch.tensor(rows, device=policy.device))

    def rescore(temperature: float) -> list[list[float]]:
        with torch.no_grad():
            again = evaluate(policy, packed, temperature, critic=False).logprobs
        return [line[: lengths[row]] for row, line in zip(rows, again.tolist(), strict=True)]

    reported = [
        engine_guard.Scored(names[row], one.logprobs, one.found_tokens, bool(one.versions))
        for row in rows
        for one in (loaded.responses[row],)
    ]
    verdict = engine_guard.judge(
        reported, rescore, config.rollout.temperature, checks.guard_tolerance
    )
    if verdict.stop:
        raise RolloutDrifts(
            f"batch {batch.number} was sampled with the weights that are about to be trained, and "
            f"its log-probabilities are not theirs: {verdict.sentence} (cause: {verdict.cause}; first "
            f"{', '.join(verdict.rows[:3])})"
        )
    return {"alignment/guarded": float(verdict.tokens), "alignment/guard_drift": verdict.drift}
