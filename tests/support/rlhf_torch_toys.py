"""A small batch for the PPO update: token rows, and everything that belongs to them, from a seed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf.model.decoder import Decoder
from rlhf.model.policy import Packed, evaluate, pack
from rlhf.model.shape import Shape
from rlhf.ppo.layout import Masks, response_mask
from rlhf.ppo.update import Rows

VOCABULARY, WIDTH, TEMPERATURE = 11, 5, 0.7


def small_model(seed: int = 0) -> Decoder:
    """A decoder that is not at its initial zeros anywhere, the value head included."""
    model = Decoder(Shape(VOCABULARY, width=16, layers=2, heads=2, context=32), seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@dataclass
class ToyExperience:
    """Rows of different lengths with made-up advantages, returns and weights."""

    packed: Packed
    masks: Masks
    proximal: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor
    reference: Tensor

    @property
    def size(self) -> int:
        return self.packed.tokens.shape[0]

    def counts(self, rows: Tensor) -> tuple[int, int]:
        return int(self.masks.policy[rows].sum()), int(self.masks.value[rows].sum())

    def take(self, rows: Tensor) -> Rows:
        return Rows(
            self.packed.rows(rows),
            Masks(self.masks.policy[rows], self.masks.value[rows]),
            self.proximal[rows],
            self.advantages[rows],
            self.weights[rows],
            self.old_values[rows],
            self.returns[rows],
            self.reference[rows],
        )


def toy_experience(model: Decoder, rows: int, seed: int = 0) -> ToyExperience:
    """Rows with ragged prompts and responses; the proximal policy is the model as it is."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> list[int]:
        return torch.randint(0, VOCABULARY, (count,), generator=generator).tolist()

    lengths = [1 + index % WIDTH for index in range(rows)]
    packed = pack(
        [tokens(2 + index % 3) for index in range(rows)], [tokens(n) for n in lengths], WIDTH
    )
    with torch.no_grad():
        now = evaluate(model, packed, TEMPERATURE)
    assert now.values is not None
    mask = response_mask(packed.response_lengths, WIDTH)

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(rows, WIDTH, generator=generator)

    return ToyExperience(
        packed=packed,
        masks=Masks(mask, mask),
        proximal=now.logprobs,
        old_values=now.values,
        advantages=noise(1.0),
        returns=now.values + noise(0.5),
        weights=1 + noise(0.1).clamp(-0.5, 0.5),
        reference=now.logprobs + noise(0.2),
    )
