"""The check at the place of use: whatever is mixed up on the way into the loss stops the update."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import msgspec
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_batches import batch_of, small_trainer
from support.rlhf_torch_small import small_config

from rlhf import experience as experience_module
from rlhf.binding import BindingError
from rlhf.experience import BoundExperience
from rlhf.identity import Score


@pytest.fixture
def trainer():
    return small_trainer(small_config())


@pytest.fixture
def batch(trainer):
    return batch_of(small_config(), trainer.policy)


def weights(trainer):
    return torch.cat([one.detach().flatten() for one in trainer.policy.parameters()])


def spoil_experience(monkeypatch, spoil):
    """Lets `spoil` change the laid out batch after all was computed, before the update takes rows."""
    original = BoundExperience.__init__

    def changed(self, loaded, rewards, ledger):
        original(self, loaded, rewards, ledger)
        self._loaded = spoil(loaded)

    monkeypatch.setattr(BoundExperience, "__init__", changed)


def swap_tokens(loaded):
    order = torch.arange(len(loaded.slots))
    order[0], order[5] = 5, 0
    packed = loaded.packed
    return loaded._replace(
        packed=packed._replace(
            tokens=packed.tokens[order],
            prompt_lengths=packed.prompt_lengths[order],
            response_lengths=packed.response_lengths[order],
        )
    )


def shift_slots(loaded):
    return loaded._replace(slots=loaded.slots.roll(1))


def change_one_token(loaded):
    tokens = loaded.packed.tokens.clone()
    tokens[3, 0] = (tokens[3, 0] + 1) % 10
    return loaded._replace(packed=loaded.packed._replace(tokens=tokens))


def cut_a_response(loaded):
    lengths = loaded.packed.response_lengths.clone()
    longest = int(lengths.argmax())
    lengths[longest] -= 1
    return loaded._replace(packed=loaded.packed._replace(response_lengths=lengths))


def move_a_border(loaded):
    packed = loaded.packed
    prompts, responses = packed.prompt_lengths.clone(), packed.response_lengths.clone()
    longest = int(responses.argmax())
    prompts[longest] += 1
    responses[longest] -= 1
    return loaded._replace(
        packed=packed._replace(prompt_lengths=prompts, response_lengths=responses)
    )


def repeat_a_slot(loaded):
    slots = loaded.slots.clone()
    slots[2] = slots[1]
    return loaded._replace(slots=slots)


@pytest.mark.parametrize(
    "spoil",
    [swap_tokens, shift_slots, change_one_token, cut_a_response, move_a_border, repeat_a_slot],
)
def test_a_row_that_is_not_the_rewarded_one_stops_the_update(monkeypatch, trainer, batch, spoil):
    spoil_experience(monkeypatch, spoil)
    with pytest.raises(BindingError) as raised:
        trainer.update(batch)
    told = str(raised.value)
    assert "mini-batch" in told
    assert "policy version 0" in told
    assert raised.value.row is not None


def test_nothing_was_learned_from_the_first_wrong_mini_batch(monkeypatch, batch):
    config = small_config("ppo.minibatches=1", "ppo.epochs=1")
    trainer = small_trainer(config)
    before = weights(trainer)
    spoil_experience(monkeypatch, shift_slots)
    with pytest.raises(BindingError):
        trainer.update(batch)
    assert torch.equal(weights(trainer), before)


def test_a_permutation_between_layout_and_scores_is_found(monkeypatch, trainer, batch):
    original = experience_module.load

    def mixed_up(*arguments):
        return shift_slots(original(*arguments))

    monkeypatch.setattr(experience_module, "load", mixed_up)
    with pytest.raises(BindingError, match="the tokens in the loss are"):
        trainer.update(batch)


def test_an_advantage_computed_from_another_reward_is_found(monkeypatch, trainer, batch):
    original = experience_module._ledger

    def swapped(*arguments):
        ledger = original(*arguments)
        first, second = list(ledger)[:2]
        ledger[first] = ledger[second]._replace(reward=ledger[second].reward + 1)
        return ledger

    monkeypatch.setattr(experience_module, "_ledger", swapped)
    with pytest.raises(BindingError, match="its advantage was computed from reward"):
        trainer.update(batch)


def test_a_sample_that_never_entered_the_loss_is_missed(monkeypatch, trainer, batch):
    monkeypatch.setattr(BoundExperience, "size", 15, raising=False)
    original = BoundExperience.__init__

    def smaller(self, *arguments):
        original(self, *arguments)
        self.size = 15

    monkeypatch.setattr(BoundExperience, "__init__", smaller)
    with pytest.raises(BindingError, match="1 samples of the batch never entered"):
        trainer.update(batch)


def test_a_batch_whose_rewards_slipped_by_one_is_found_by_the_audit(batch):
    rewards = [one.score for one in batch.samples]
    late = [
        msgspec.structs.replace(one, score=reward)
        for one, reward in zip(batch.samples, [Score(0.77), *rewards[:-1]], strict=True)
    ]
    trainer = small_trainer(small_config("checks.audits=16"))
    with pytest.raises(trainer_error(), match="audit of slot"):
        trainer.update(msgspec.structs.replace(batch, samples=late))


def trainer_error():
    from rlhf.trainer import RewardWrong

    return RewardWrong


def test_a_canary_with_another_reward_is_found():
    config = small_config("checks.canary_every=5", "checks.audits=0")
    trainer = small_trainer(config)
    batch = batch_of(config, trainer.policy)
    trainer.update(batch)
    slipped = [
        msgspec.structs.replace(one, score=before.score)
        for one, before in zip(batch.samples, [batch.samples[-1], *batch.samples[:-1]], strict=True)
    ]
    with pytest.raises(trainer_error(), match="canary in slot"):
        trainer.update(msgspec.structs.replace(batch, samples=slipped))


def test_with_every_row_in_its_place_the_update_goes_through(trainer, batch):
    before = weights(trainer)
    updated = trainer.update(batch)
    assert updated.metrics["alignment/bound"] == 1
    assert not torch.equal(weights(trainer), before)
