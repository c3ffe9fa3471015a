"""Which models the paged forward pass takes, and what it says of others."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import llama_like, small_model
from torch import nn

from rlhf.kv.architecture import UnsupportedModel, architecture_of
from rlhf.model.language import LanguageModel


def test_our_decoder_and_llama_shapes_are_known() -> None:
    ours = architecture_of(small_model())
    assert (ours.heads, ours.shared_heads, ours.head_width, ours.context) == (4, 4, 8, 96)
    theirs = architecture_of(llama_like())
    assert (theirs.heads, theirs.shared_heads, theirs.head_width, theirs.context) == (4, 2, 8, 96)
    assert theirs.scale == pytest.approx(8**-0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "gemma2"}, "type 'gemma2'"),
        ({"model_type": "mistral", "sliding_window": 64}, "sliding window"),
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
    ],
)
def test_what_would_come_to_other_numbers_is_refused(settings, message) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        architecture_of(llama_like(**settings))


def test_a_window_that_is_switched_off_is_none() -> None:
    settings = {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 64}
    assert architecture_of(llama_like(**settings)).heads == 4


def test_layers_of_other_parts_are_refused() -> None:
    model = llama_like()
    model.causal.model.layers[1].pre_feedforward_layernorm = nn.Identity()
    with pytest.raises(UnsupportedModel, match="pre_feedforward_layernorm"):
        architecture_of(model)
    model = llama_like()
    model.causal.model.layers[1].self_attn.sinks = nn.Identity()
    with pytest.raises(UnsupportedModel, match="sinks"):
        architecture_of(model)


def test_a_model_of_another_kind_is_refused() -> None:
    class Other(LanguageModel):
        pass

    with pytest.raises(UnsupportedModel, match="Other is neither"):
        architecture_of(Other())
