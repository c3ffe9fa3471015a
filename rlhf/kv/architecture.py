"""The parts of a model that a paged forward pass walks through: ours, and Llama's kin.

Both have the same layers under the same names: norm, attention of four projections, norm, gated
network. What a family adds elsewhere (sliding windows, experts, scaled embeddings, soft caps) is
refused by name: wrong numbers would be worse than none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlhf.model.decoder import Decoder
from rlhf.model.language import LanguageModel

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_OPTIONAL = {"q_norm", "k_norm"}
# Their angles depend on the longest row of the batch, so a response would depend on its neighbours.
_SHIFTING_ROTARY = ("dynamic", "longrope")

Turn = Callable[[Tensor], tuple[Tensor, Tensor]]


class UnsupportedModel(ValueError):
    """A model that is not built like the ones known here; the plain engine takes any."""


@dataclass(frozen=True)
class Architecture:
    """Modules are read at each step: weights changed in place count from the next one on."""

    layers: list[Any]
    embed: Callable[[Tensor], Tensor]
    norm: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]
    turn: Turn
    """[tokens] positions to cosine and sine, [tokens, head width] each."""
    heads: int
    shared_heads: int
    """Heads of keys and values."""
    head_width: int
    scale: float
    context: int
    vocabulary: int
    dtype: torch.dtype
    device: torch.device


def architecture_of(model: LanguageModel) -> Architecture:
    """The parts of a model.

    Raises:
        UnsupportedModel: says what it has that is not known here.
    """
    if isinstance(model, Decoder):
        return _ours(model)
    causal = getattr(model, "causal", None)
    if not isinstance(causal, nn.Module):
        raise UnsupportedModel(f"{type(model).__name__} is neither our decoder nor Hugging Face's")
    return _hugging_face(causal)


def _ours(model: Decoder) -> Architecture:
    shape = model.shape
    weight = model.embed_tokens.weight
    return Architecture(
        layers=list(model.layers),
        embed=model.embed_tokens,
        norm=model.norm,
        head=lambda hidden: functional.linear(hidden, model.embed_tokens.weight),
        turn=lambda positions: (model.cosine[positions], model.sine[positions]),
        heads=shape.heads,
        shared_heads=shape.heads,
        head_width=shape.width // shape.heads,
        scale=(shape.width // shape.heads) ** -0.5,
        context=shape.context,
        vocabulary=shape.vocabulary,
        dtype=weight.dtype,
        device=weight.device,
    )


def _hugging_face(causal: nn.Module) -> Architecture:
    made: Any = causal
    config: Any = made.config
    _check_family(config)
    body = made.model
    layers = list(body.layers)
    for layer in layers:
        _check_layer(layer)
    heads = int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    weight = body.embed_tokens.weight

    def turn(positions: Tensor) -> tuple[Tensor, Tensor]:
        like = torch.empty(0, dtype=weight.dtype, device=weight.device)
        cosine, sine = body.rotary_emb(like, positions[None])
        return cosine[0], sine[0]

    return Architecture(
        layers=layers,
        embed=body.embed_tokens,
        norm=body.norm,
        head=made.lm_head,
        turn=turn,
        heads=heads,
        shared_heads=int(getattr(config, "num_key_value_heads", None) or heads),
        head_width=width,
        scale=float(getattr(layers[0].self_attn, "scaling", None) or width**-0.5),
        context=int(config.max_position_embeddings),
        vocabulary=int(weight.shape[0]),
        dtype=weight.dtype,
        device=weight.device,
    )


def _check_family(config: Any) -> None:
    family = getattr(config, "model_type", "unknown")
    if family not in FAMILIES:
        raise UnsupportedModel(
            f"models of type {family!r} are not known to the paged engine, only {', '.join(FAMILIES)}"
        )
    windowed = getattr(config, "use_sliding_window", family == "mistral")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if (windowed and getattr(config, "sliding_window", None)) or kinds != {"full_attention"}:
        raise UnsupportedModel("the model attends through a sliding window")
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if kind in _SHIFTING_ROTARY:
        raise UnsupportedModel(f"rotary positions of type {kind!r} depend on the batch")
    if getattr(config, "partial_rotary_factor", 1.0) not in (None, 1.0):
        raise UnsupportedModel("the model turns only a part of each head by its position")


def _check_layer(layer: Any) -> None:
    parts = {name for name, _ in layer.named_children()}
    attention = (
        {name for name, _ in layer.self_attn.named_children()} if "self_attn" in parts else set()
    )
    if parts != _LAYER or not _ATTENTION <= attention <= _ATTENTION | _OPTIONAL:
        found = ", ".join(sorted(parts | attention))
        raise UnsupportedModel(f"a layer of other parts than Llama's: {found}")
