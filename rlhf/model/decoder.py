"""A small decoder in plain torch: RMS norm, rotary positions, gated network, tied output, value head.

Shapes and parameter names are those of Llama in the Hugging Face layout, so that an export is a matter
of copying files. Initialised from a seed of its own, whatever the global generator is at.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlhf.model.language import LanguageModel, Output
from rlhf.model.llama_layout import NORM_EPS, write_llama
from rlhf.model.shape import Shape


class Cache:
    """Keys and values of what was read, by layer: [rows, heads, context, head width].

    Rows may be of different lengths; an entry beyond a row's length is never attended to.
    """

    def __init__(self, shape: Shape, rows: int, length: int, like: Tensor) -> None:
        size = (rows, shape.heads, length, shape.width // shape.heads)
        self.keys = [like.new_zeros(size) for _ in range(shape.layers)]
        self.values = [like.new_zeros(size) for _ in range(shape.layers)]

    def keep(self, rows: Tensor) -> None:
        """Only these rows stay, in this order."""
        self.keys = [one[rows] for one in self.keys]
        self.values = [one[rows] for one in self.values]


class Norm(nn.Module):
    """Scales to a root mean square of 1, times a learned weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPS)


class Attention(nn.Module):
    """Each token looks at itself and what came before."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)

    def project(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [rows, heads, tokens, head width]; positions are turned in."""
        rows, tokens, width = x.shape
        query, key, value = (
            part(x).view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotated(query, turn), rotated(key, turn), value

    def merge(self, attended: Tensor) -> Tensor:
        """[rows, heads, tokens, head width] to [rows, tokens, width]."""
        merged: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return merged


class GatedNetwork(nn.Module):
    """What a token makes of what it has gathered."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return made


class Layer(nn.Module):
    """Attention, then the network, each added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.width)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = Norm(shape.width)
        self.mlp = GatedNetwork(shape)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], room: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """[rows, tokens, width] to the same; `room` takes the keys and values."""
        query, key, value = self.self_attn.project(self.input_layernorm(x), turn)
        if room is not None:
            room[0][:, :, : x.shape[1]] = key
            room[1][:, :, : x.shape[1]] = value
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self._finish(x, attended)

    def forward_cached(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        room: tuple[Tensor, Tensor],
        positions: Tensor,
    ) -> Tensor:
        """One new token per row; writes it into the row's cache at its position."""
        keys, values = room
        query, key, value = self.self_attn.project(self.input_layernorm(x), turn)
        rows = torch.arange(x.shape[0], device=x.device)
        keys[rows, :, positions] = key[:, :, 0]
        values[rows, :, positions] = value[:, :, 0]
        visible = torch.arange(keys.shape[2], device=x.device) <= positions[:, None]
        attended = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=visible[:, None, None, :]
        )
        return self._finish(x, attended)

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.self_attn.merge(attended)
        done: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return done


class Decoder(LanguageModel):
    """The model. Without dropout, so that two passes over the same tokens give the same numbers."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)
        self.value_head = nn.Linear(shape.width, 1)
        self.cosine: Tensor
        self.sine: Tensor
        cosine, sine = rotary_table(shape)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        self._initialise(seed)

    @property
    def context(self) -> int:
        """Most tokens of a row."""
        return self.shape.context

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        # The usual 0.02 is for wide models: a narrow one would start with next to no signal.
        spread = min(0.1, self.shape.width**-0.5)
        scaled = spread / (2 * self.shape.layers) ** 0.5
        for name, parameter in self.named_parameters():
            if name.startswith("value_head"):
                nn.init.zeros_(parameter)  # first values are 0: first returns are the rewards
            elif parameter.dim() > 1:
                into_stream = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(
                    parameter, std=scaled if into_stream else spread, generator=generator
                )

    def forward(self, tokens: Tensor) -> Output:
        """[rows, tokens] token ids to logits and values at every token.

        Raises:
            ValueError: more tokens than the context.
        """
        return self._read_out(self.hidden(tokens))

    def hidden(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """[rows, tokens, width]: what the last layer makes of each token; fills a cache, if given.

        Raises:
            ValueError: more tokens than the context.
        """
        length = tokens.shape[1]
        if length > self.shape.context:
            raise ValueError(f"{length} tokens, more than the context of {self.shape.context}")
        turn = (self.cosine[:length], self.sine[:length])
        x = self.embed_tokens(tokens)
        for number, layer in enumerate(self.layers):
            room = None if cache is None else (cache.keys[number], cache.values[number])
            x = layer(x, turn, room)
        normed: Tensor = self.norm(x)
        return normed

    def prefill(self, tokens: Tensor, lengths: Tensor, cache: Cache) -> Output:
        """Reads prompts, padded on the right; outputs of each one's last token, [rows, 1, ...].

        What padding leaves in the cache is never seen: the next token of the row overwrites it.
        """
        hidden = self.hidden(tokens, cache)
        rows = torch.arange(len(lengths), device=tokens.device)
        return self._read_out(hidden[rows, lengths - 1][:, None])

    def step(self, tokens: Tensor, positions: Tensor, cache: Cache) -> Output:
        """One more token per row: [rows] ids and [rows] positions to outputs of one token."""
        turn = (self.cosine[positions, None, None], self.sine[positions, None, None])
        x = self.embed_tokens(tokens[:, None])
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            assert isinstance(layer, Layer)
            x = layer.forward_cached(x, turn, (keys, values), positions)
        return self._read_out(self.norm(x))

    def export(self, folder: Path) -> None:
        """Writes the Hugging Face layout of a Llama with these weights."""
        write_llama(folder, self.shape, self.state_dict())

    def _read_out(self, x: Tensor) -> Output:
        logits = functional.linear(x, self.embed_tokens.weight)
        return Output(logits, self.value_head(x).squeeze(-1))


def rotary_table(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, [context, head width] each."""
    half = shape.width // shape.heads // 2
    frequencies = shape.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(shape.context, dtype=torch.float64)[:, None] * frequencies
    doubled = torch.cat((angles, angles), dim=1)
    return doubled.cos().float(), doubled.sin().float()


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turns pairs (i, i + half) of each head by the angles of the token's position."""
    cosine, sine = turn
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine
