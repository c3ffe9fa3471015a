"""A delivered batch as tensors to learn from, with the check that binds every row to its own reward.

What follows from rewards (advantages, returns) is not kept in tensors beside the tokens. It lies in a
ledger under (slot, digests of prompt and response), and each mini-batch asks for it with digests of the
very tensors that it is about to feed to the loss. However rows were sorted, shuffled, cut or padded on
the way: they meet their own numbers or none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf.binding import BindingError, BoundRewards, path_of
from rlhf.config.sections import RunConfig
from rlhf.identity import Digests
from rlhf.model.language import LanguageModel
from rlhf.model.policy import Packed, evaluate, pack
from rlhf.ppo.correction import Correction, importance_weights
from rlhf.ppo.estimators import Advantages, Measured, advantages_of
from rlhf.ppo.layout import Masks, masks
from rlhf.ppo.update import Rows
from rlhf.responses import Response, unpack
from rlhf.reward_queue_types import Batch, Graded

_SORTED = "sorted by length"


class Entry(NamedTuple):
    """What belongs to one sample in the loss: [width] each."""

    reward: float
    policy_mask: Tensor
    value_mask: Tensor
    proximal: Tensor
    reference: Tensor
    advantages: Tensor
    weights: Tensor
    old_values: Tensor | None
    returns: Tensor | None


class Loaded(NamedTuple):
    """A batch laid out: row i of `packed` is slot `slots[i]`, whose sample is `graded[i]`."""

    packed: Packed
    slots: Tensor
    graded: list[Graded]
    responses: list[Response]
    behaviour: Tensor


def load(batch: Batch, width: int, device: torch.device) -> Loaded:
    """Lays a batch out, rows sorted by length, so that neighbours need little padding."""
    samples = sorted(
        ((one, unpack(one.payload)) for one in batch.samples),
        key=lambda pair: (
            len(pair[1].prompt_ids) + len(pair[1].response_ids),
            pair[0].envelope.seq,
        ),
    )
    responses = [response for _, response in samples]
    packed = pack(
        [one.prompt_ids for one in responses],
        [one.response_ids for one in responses],
        width,
        device=device,
    )
    behaviour = [one.logprobs + [0.0] * (width - len(one.logprobs)) for one in responses]
    return Loaded(
        packed,
        torch.tensor([one.envelope.seq for one, _ in samples]),
        [one for one, _ in samples],
        responses,
        torch.tensor(behaviour, device=device),
    )


class Opinions(NamedTuple):
    """What policy and reference say of the batch before it is learned from: [rows, width] each."""

    proximal: Tensor
    entropy: Tensor
    values: Tensor | None
    reference: Tensor


def opinions(
    packed: Packed, policy: LanguageModel, reference: LanguageModel, config: RunConfig
) -> Opinions:
    """Two forward passes without gradients, in parts of a micro-batch."""
    temperature, critic = config.rollout.temperature, config.ppo.critic
    parts = []
    rows = torch.arange(packed.tokens.shape[0], device=packed.tokens.device)
    with torch.no_grad():
        for part in torch.split(rows, config.ppo.micro_batch or len(rows)):
            chosen = packed.rows(part)
            now = evaluate(policy, chosen, temperature, critic=critic)
            before = evaluate(reference, chosen, temperature, critic=False)
            parts.append((now.logprobs, now.entropy, now.values, before.logprobs))
    logprobs, entropy, values, before_logprobs = zip(*parts, strict=True)
    return Opinions(
        torch.cat(logprobs),
        torch.cat(entropy),
        torch.cat(values) if critic else None,
        torch.cat(before_logprobs),
    )


class BoundExperience:
    """The batch as the update takes it. Every `take` is a check."""

    def __init__(
        self, loaded: Loaded, rewards: BoundRewards, ledger: dict[tuple[int, Digests], Entry]
    ) -> None:
        self._loaded = loaded
        self._rewards = rewards
        self._ledger = ledger
        self.size = len(loaded.graded)
        by_slot = {slot: entry for (slot, _), entry in ledger.items()}
        order = [by_slot[slot] for slot in loaded.slots.tolist()]
        self._tokens = torch.tensor([int(entry.policy_mask.sum()) for entry in order])
        self._value_tokens = torch.tensor([int(entry.value_mask.sum()) for entry in order])

    def counts(self, rows: Tensor) -> tuple[int, int]:
        """How many tokens of these rows count for the policy, and for the critic."""
        return int(self._tokens[rows].sum()), int(self._value_tokens[rows].sum())

    def take(self, rows: Tensor) -> Rows:
        """These rows, each with what belongs to the tokens that are returned.

        Raises:
            BindingError: a row's tokens are not those that its reward was computed on.
        """
        inputs = self._loaded.packed.rows(rows.to(self._loaded.packed.tokens.device))
        slots = self._loaded.slots[rows].tolist()
        entries = [self._entry(inputs, row, slot) for row, slot in enumerate(slots)]
        return Rows(
            inputs=inputs,
            masks=Masks(
                torch.stack([one.policy_mask for one in entries]),
                torch.stack([one.value_mask for one in entries]),
            ),
            proximal=torch.stack([one.proximal for one in entries]),
            advantages=torch.stack([one.advantages for one in entries]),
            weights=torch.stack([one.weights for one in entries]),
            old_values=_stacked([one.old_values for one in entries]),
            returns=_stacked([one.returns for one in entries]),
            reference=torch.stack([one.reference for one in entries]),
        )

    def require_all(self) -> None:
        """Says whether every sample of the batch was in the loss.

        Raises:
            BindingError: one was not.
        """
        left = self._rewards.unused()
        if left:
            graded = next(one for one in self._loaded.graded if one.envelope.seq == left[0])
            told = f"{len(left)} samples of the batch never entered the loss, the first is this one"
            digests = graded.envelope.digests
            raise BindingError(told, left[0], digests, digests, ("nowhere", path_of(graded)))

    def _entry(self, inputs: Packed, row: int, slot: int) -> Entry:
        path = (_SORTED, "shuffled", f"row {row} of a mini-batch")
        graded = self._rewards.fetch(slot, inputs.prompt(row), inputs.response(row), path)
        entry = self._ledger[slot, graded.envelope.digests]
        if entry.reward != graded.score.reward:
            told = (
                f"its advantage was computed from reward {entry.reward!r}, and its reward is "
                f"{graded.score.reward!r}"
            )
            digests = graded.envelope.digests
            raise BindingError(told, slot, digests, digests, (" -> ".join(path), path_of(graded)))
        return entry


class Prepared(NamedTuple):
    """A batch ready for the update, and what the record says of it."""

    experience: BoundExperience
    loaded: Loaded
    scores: Tensor
    measured: Measured
    advantages: Advantages
    correction: Correction
    entropy: Tensor
    counted: Tensor
    """[rows] those that train something: all but canaries."""


def prepare(
    batch: Batch,
    policy: LanguageModel,
    reference: LanguageModel,
    config: RunConfig,
    beta: float,
    stop_tokens: Sequence[int],
    canaries: frozenset[int],
) -> Prepared:
    """From a delivered batch to something that the update can take.

    Raises:
        BindingError: a row as laid out has no reward of its own.
    """
    width = config.rollout.max_new_tokens
    loaded = load(batch, width, policy.device)
    rewards = BoundRewards(batch)
    scores = _scores(loaded, BoundRewards(batch))
    said = opinions(loaded.packed, policy, reference, config)
    last = [one.response_ids[-1] for one in loaded.responses]
    device = said.proximal.device
    stopped = torch.tensor([token in stop_tokens for token in last], device=device)
    excluded = torch.tensor([slot in canaries for slot in loaded.slots.tolist()], device=device)
    which = masks(
        loaded.packed.response_lengths,
        stopped,
        excluded,
        width,
        drop_truncated=config.ppo.drop_truncated,
    )
    groups = torch.tensor([one.envelope.group_id for one in loaded.graded], device=device)
    measured = Measured(
        scores.to(device), stopped, groups, which, said.proximal, said.reference, said.values
    )
    found = advantages_of(measured, config.ppo, config.kl, beta)
    wanted = config.correction
    correction = importance_weights(
        said.proximal, loaded.behaviour, which.policy, wanted.mode, cap=wanted.cap, low=wanted.low
    )
    ledger = _ledger(loaded, measured, found, correction)
    experience = BoundExperience(loaded, rewards, ledger)
    return Prepared(
        experience, loaded, scores, measured, found, correction, said.entropy, ~excluded
    )


def _scores(loaded: Loaded, rewards: BoundRewards) -> Tensor:
    """[rows] each row's reward, fetched with the digests of the row as it is laid out."""
    packed = loaded.packed
    return torch.tensor(
        [
            rewards.fetch(
                slot, packed.prompt(row), packed.response(row), (_SORTED, f"row {row}")
            ).score.reward
            for row, slot in enumerate(loaded.slots.tolist())
        ]
    )


def _ledger(
    loaded: Loaded, measured: Measured, found: Advantages, correction: Correction
) -> dict[tuple[int, Digests], Entry]:
    """Every sample's numbers under its identity."""
    ledger = {}
    for row, graded in enumerate(loaded.graded):
        ledger[graded.envelope.seq, graded.envelope.digests] = Entry(
            graded.score.reward,
            measured.masks.policy[row],
            measured.masks.value[row],
            measured.proximal[row],
            measured.reference[row],
            found.advantages[row],
            correction.weights[row],
            None if measured.values is None else measured.values[row],
            None if found.returns is None else found.returns[row],
        )
    return ledger


def _stacked(columns: Sequence[Tensor | None]) -> Tensor | None:
    there = [one for one in columns if one is not None]
    return torch.stack(there) if there else None
