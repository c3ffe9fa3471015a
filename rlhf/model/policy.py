"""What training asks of a language model: how likely given responses are, and what states are worth.

Everybody goes through `log_softmax_at`: sampling, the policy, the reference. One temperature, one
arithmetic; so a ratio that should be 1 is 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf.model.language import LanguageModel
from rlhf.ppo.layout import at_response
from rlhf.ppo.update import Evaluation


class Packed(NamedTuple):
    """Rows as they enter the model: prompt and response without a gap, padded on the right."""

    tokens: Tensor
    """[rows, longest] ids."""
    prompt_lengths: Tensor
    """[rows]."""
    response_lengths: Tensor
    """[rows], stop token included."""
    width: int
    """Columns for response tokens."""

    def rows(self, chosen: Tensor) -> "Packed":
        """These rows, cut to the longest of them."""
        prompts, responses = self.prompt_lengths[chosen], self.response_lengths[chosen]
        longest = int((prompts + responses).max())
        return Packed(self.tokens[chosen, :longest], prompts, responses, self.width)

    def prompt(self, row: int) -> list[int]:
        """The prompt's ids, read back from the tensor."""
        ids: list[int] = self.tokens[row, : int(self.prompt_lengths[row])].tolist()
        return ids

    def response(self, row: int) -> list[int]:
        """The response's ids, read back from the tensor."""
        start = int(self.prompt_lengths[row])
        stop = start + int(self.response_lengths[row])
        ids: list[int] = self.tokens[row, start:stop].tolist()
        return ids

    def responses(self) -> Tensor:
        """[rows, width] the response's ids, by column; padding repeats the row's last token."""
        columns = torch.arange(self.width, device=self.tokens.device)
        positions = self.prompt_lengths[:, None] + columns
        return self.tokens.gather(1, positions.clamp(max=self.tokens.shape[1] - 1))


def pack(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    width: int,
    *,
    padding: int = 0,
    device: str | torch.device = "cpu",
) -> Packed:
    """Lays rows out. Every prompt and every response has at least one token.

    Raises:
        ValueError: an empty prompt or response, or a response longer than `width`.
    """
    rows = []
    for prompt, response in zip(prompts, responses, strict=True):
        if not prompt or not response or len(response) > width:
            raise ValueError(
                f"a row needs a prompt and a response of 1 to {width} tokens, not "
                f"{len(prompt)} and {len(response)}"
            )
        rows.append([*prompt, *response])
    longest = max(len(row) for row in rows)
    tokens = torch.tensor([row + [padding] * (longest - len(row)) for row in rows], device=device)
    return Packed(
        tokens,
        torch.tensor([len(prompt) for prompt in prompts], device=device),
        torch.tensor([len(response) for response in responses], device=device),
        width,
    )


def log_softmax_at(logits: Tensor, temperature: float | Tensor) -> Tensor:
    """Log-probabilities of the next token at a sampling temperature (or one per row), in float32."""
    return torch.log_softmax(logits.float() / temperature, dim=-1)


def evaluate(
    model: LanguageModel, packed: Packed, temperature: float, *, critic: bool = True
) -> Evaluation:
    """[rows, width] log-probability, entropy and value of each response token.

    Columns beyond a response hold whatever the model says there; masks leave them out.
    """
    output = model(packed.tokens)
    # The response's part first: the logits of prompts are large and nobody asks for them.
    logits = at_response(output.logits, packed.prompt_lengths, packed.width)
    everything = log_softmax_at(logits, temperature)
    logprobs = everything.gather(2, packed.responses()[:, :, None]).squeeze(2)
    entropy = -(everything.exp() * everything).sum(dim=-1)
    values = at_response(output.values, packed.prompt_lengths, packed.width)
    return Evaluation(logprobs, entropy, values.float() if critic else None)
