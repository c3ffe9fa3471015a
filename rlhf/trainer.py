"""The trainer: policy, reference, optimizer; one update per delivered batch, and what is known after it."""

import copy
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf import rollout_check
from rlhf.building import Audit
from rlhf.canaries import CanaryPlan
from rlhf.config.sections import RunConfig
from rlhf.experience import Prepared, prepare
from rlhf.graders.protocol import Sample
from rlhf.identity import sampling_seed
from rlhf.model.language import LanguageModel
from rlhf.model.policy import Packed, evaluate
from rlhf.ppo.kl import AdaptiveKl, Controller, FixedKl
from rlhf.ppo.statistics import kept, masked_mean
from rlhf.ppo.update import Evaluation, update
from rlhf.responses import unpack
from rlhf.reward_queue_types import Batch, Graded
from rlhf.sample_rows import SampleRow

_RELATIVE, _ABSOLUTE = 1e-5, 1e-7


class RewardWrong(Exception):
    """A reward that entered the loss is not the one of its sample: an audit or a canary says so."""


class Updated(NamedTuple):
    """What an update has come to: metrics by name, and its samples."""

    metrics: dict[str, float]
    rows: list[SampleRow]


class Trainer:
    """Owns what is trained. Stops the run rather than learn from a reward of doubtful origin."""

    def __init__(
        self,
        policy: LanguageModel,
        config: RunConfig,
        stop_tokens: tuple[int, ...],
        *,
        audit: Audit | None = None,
        canaries: CanaryPlan | None = None,
    ) -> None:
        self.policy = policy
        self.reference = copy.deepcopy(policy)
        self.reference.requires_grad_(requires_grad=False)
        self._config = config
        self._stop_tokens = stop_tokens
        self._audit = audit
        self._canaries = canaries
        settings = config.optimizer
        self.optimizer = torch.optim.AdamW(
            policy.parameters(),
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        self.kl: Controller = (
            FixedKl(config.kl.beta)
            if config.kl.target is None
            else AdaptiveKl(config.kl.beta, config.kl.target, config.kl.horizon)
        )

    def become_reference(self) -> None:
        """The policy as it is now is what it is not to stray from."""
        self.reference.load_state_dict(self.policy.state_dict())

    def update(self, batch: Batch) -> Updated:
        """Learns from a batch.

        Raises:
            BindingError: a reward does not belong to the tokens in the loss.
            RewardWrong: an audit or a canary has another reward than it should.
            RolloutDrifts: rollout does not sample from the policy that is trained; names the cause.
            RatioNotOne: the forward pass in the update is not the one before it.
        """
        known = self._known(batch)
        prepared = prepare(
            batch,
            self.policy,
            self.reference,
            self._config,
            self.kl.beta,
            self._stop_tokens,
            frozenset(known),
        )
        recomputed = self._audited(batch)
        _check_canaries(batch, known)
        guarded = rollout_check.check(batch, prepared, self.policy, self._config)
        self._set_learning_rate(batch.number)
        learned = update(
            prepared.experience,
            self._evaluate,
            self.optimizer,
            self._config.ppo,
            self._config.kl,
            self.kl.beta,
            sampling_seed(self._config.seed, batch.number, 0),
        )
        prepared.experience.require_all()
        metrics = learned | guarded | self._measured(batch, prepared, recomputed)
        self.kl.update(metrics["objective/kl"], int(prepared.counted.sum()))
        return Updated(metrics, _rows(batch, prepared, known | recomputed, frozenset(known)))

    def _evaluate(self, packed: Packed) -> Evaluation:
        config = self._config
        return evaluate(self.policy, packed, config.rollout.temperature, critic=config.ppo.critic)

    def _set_learning_rate(self, step: int) -> None:
        settings = self._config.optimizer
        left = 1.0 - step / self._config.steps if settings.schedule == "linear" else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * left

    def _audited(self, batch: Batch) -> dict[int, float]:
        """Some rewards computed again, by slot.

        Raises:
            RewardWrong: one differs.
        """
        count = self._config.checks.audits
        if self._audit is None or not count:
            return {}
        known = self._known(batch)
        plain = [one for one in batch.samples if one.envelope.seq not in known]
        chosen = sorted(
            plain, key=lambda one: sampling_seed(self._config.seed, one.envelope.seq, -2)
        )
        found = {}
        for graded in chosen[:count]:
            again = self._audit.score(_sample(graded)).reward
            found[graded.envelope.seq] = again
            if not math.isclose(graded.score.reward, again, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE):
                raise RewardWrong(
                    f"audit of slot {graded.envelope.seq}: its reward is {graded.score.reward:g}, and "
                    f"computed again from its text it is {again:g}. The grader is not pure, or the "
                    "reward is another sample's"
                )
        return found

    def _known(self, batch: Batch) -> dict[int, float]:
        """Slots whose reward was known beforehand, and what it has to be."""
        if self._canaries is None:
            return {}
        return self._canaries.among(one.envelope.seq for one in batch.samples)

    def _measured(
        self, batch: Batch, prepared: Prepared, recomputed: Mapping[int, float]
    ) -> dict[str, float]:
        measured, mask = prepared.measured, prepared.measured.masks.value
        counted = prepared.counted
        by_row = kept(measured.proximal - measured.reference, mask).sum(dim=1)
        kl = _mean(by_row[counted])
        scores = measured.scores[counted]
        metrics = {
            "objective/kl": kl,
            "objective/scores": _mean(scores),
            "objective/scores_std": float(scores.std(unbiased=False)) if len(scores) else 0.0,
            "objective/rlhf_reward": _mean(prepared.advantages.rewards.sum(dim=1)[counted]),
            "objective/entropy": float(masked_mean(prepared.entropy, mask)),
            "objective/beta": self.kl.beta,
            "val/num_eos_tokens": _mean(measured.stopped[counted].float()),
            "val/response_length": _mean(mask.sum(dim=1)[counted].float()),
            "optimizer/lr": float(self.optimizer.param_groups[0]["lr"]),
            "staleness/versions": float(batch.number - batch.policy_version),
            "staleness/mismatch_kl": prepared.correction.mismatch_kl,
            "staleness/largest_weight": prepared.correction.largest,
            "staleness/dropped_tokens": prepared.correction.dropped,
            "staleness/carried_tokens": _carried(batch, prepared),
            "alignment/bound": 1.0,
            "alignment/audited": float(len(recomputed)),
            "alignment/canaries": float((~counted).sum()),
        }
        if measured.values is not None:
            metrics["val/value_mean"] = float(masked_mean(measured.values, mask))
        return metrics | _parts(batch, frozenset(self._known(batch)))


def _check_canaries(batch: Batch, known: Mapping[int, float]) -> None:
    """Raises RewardWrong where a known reward is not in its slot."""
    for graded in batch.samples:
        seq = graded.envelope.seq
        if seq in known and graded.score.reward != known[seq]:
            raise RewardWrong(
                f"canary in slot {seq}: its reward is {graded.score.reward!r} and must be "
                f"{known[seq]!r}: rewards have slipped on their way"
            )


def _carried(batch: Batch, prepared: Prepared) -> float:
    """Tokens that a newer policy version than the batch's own has drawn."""
    return float(
        sum(
            version > batch.policy_version
            for response in prepared.loaded.responses
            for version in response.versions
        )
    )


def _mean(values: Tensor) -> float:
    return float(values.mean()) if values.numel() else 0.0


def _parts(batch: Batch, canaries: frozenset[int]) -> dict[str, float]:
    """The mean of each named part of the reward."""
    sums: dict[str, list[float]] = {}
    for graded in batch.samples:
        if graded.envelope.seq not in canaries:
            for name, value in graded.score.parts.items():
                sums.setdefault(name, []).append(value)
    return {f"objective/scores/{name}": sum(all_) / len(all_) for name, all_ in sums.items()}


def _sample(graded: Graded) -> Sample:
    """What a grader sees of a delivered sample."""
    response = unpack(graded.payload)
    return Sample(
        graded.envelope,
        response.prompt_ids,
        response.response_ids,
        response.prompt,
        response.response,
        response.context,
    )


def _rows(
    batch: Batch, prepared: Prepared, recomputed: Mapping[int, float], canaries: frozenset[int]
) -> list[SampleRow]:
    """The samples of the step, by slot."""
    advantages = prepared.advantages.advantages.sum(dim=1)
    counts = prepared.measured.masks.policy.sum(dim=1).clamp(min=1)
    mean_advantage = (advantages / counts).tolist()
    rows = []
    for place, (graded, response) in enumerate(
        zip(prepared.loaded.graded, prepared.loaded.responses, strict=True)
    ):
        envelope = graded.envelope
        rows.append(
            SampleRow(
                step=batch.number,
                seq=envelope.seq,
                reward=graded.score.reward,
                draw=envelope.draw,
                group_id=envelope.group_id,
                policy_version=envelope.policy_version,
                prompt_digest=envelope.prompt_digest,
                response_digest=envelope.response_digest,
                recomputed=recomputed.get(envelope.seq),
                canary=envelope.seq in canaries,
                parts=graded.score.parts,
                features={
                    "length": float(len(response.response_ids)),
                    "logprob_sum": float(sum(response.logprobs)),
                },
                advantage=mean_advantage[place],
                prompt=response.prompt,
                response=response.response,
                attempt=envelope.attempt,
                worker=graded.worker,
                latency_seconds=graded.answered_at - graded.claimed_at,
            )
        )
    return sorted(rows, key=lambda row: row.seq)
