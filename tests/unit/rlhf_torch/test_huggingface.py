"""Hugging Face models: by a stand-in with their interface, and by the library where it is installed."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import json
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from safetensors.torch import load_file
from support.rlhf_torch_toys import small_model

from rlhf.generation import PlainEngine, drain
from rlhf.model.huggingface import (
    HuggingFaceModel,
    HuggingFaceVocabulary,
    ModelUnavailable,
    load_model,
    load_vocabulary,
)
from rlhf.model.policy import evaluate, pack
from rlhf.sampling import Parameters


class StandIn(torch.nn.Module):
    """A causal model with the interface of the library's, around a decoder of ours."""

    def __init__(self):
        super().__init__()
        self.inside = small_model()
        self.dropout = torch.nn.Dropout(0.5)
        self.config = SimpleNamespace(hidden_size=16, max_position_embeddings=32)

    def forward(self, input_ids, output_hidden_states, use_cache):
        assert output_hidden_states
        assert not use_cache
        hidden = self.dropout(self.inside.hidden(input_ids))
        logits = hidden @ self.inside.embed_tokens.weight.T
        return SimpleNamespace(logits=logits, hidden_states=(None, hidden))

    def save_pretrained(self, folder, safe_serialization):
        assert safe_serialization
        (folder / "saved").write_text("yes")


def test_a_model_of_another_make_is_evaluated_and_sampled_like_ours():
    ours, theirs = small_model(), HuggingFaceModel(StandIn())
    packed = pack([[1, 2], [3]], [[4, 5, 6], [7]], 3)
    with torch.no_grad():
        expected, found = evaluate(ours, packed, 0.7), evaluate(theirs, packed, 0.7)
    assert torch.allclose(found.logprobs, expected.logprobs, atol=1e-6)
    assert found.values is not None
    assert found.values.abs().max() == 0
    tokens = []
    for model in (ours, theirs):
        engine = PlainEngine(model)
        for index in range(3):
            engine.submit("p", index, [1, 2, index], Parameters(6, seed=index, stop_tokens=(10,)))
        tokens.append([result.tokens for result in drain(engine)])
    assert tokens[0] == tokens[1]


def test_its_dropout_stays_off_when_training_begins():
    model = HuggingFaceModel(StandIn())
    model.train()
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, model(tokens).logits)
    assert model.context == 32


def test_it_is_exported_by_its_own_means(tmp_path):
    HuggingFaceModel(StandIn()).export(tmp_path)
    assert (tmp_path / "saved").exists()


def test_a_tokenizer_without_end_is_refused_and_one_without_padding_uses_the_end():
    class Tokenizer:
        eos_token_id = 2
        pad_token_id = None

        def __len__(self):
            return 7

        def encode(self, text, add_special_tokens):
            assert not add_special_tokens
            return [len(text)]

        def decode(self, ids, skip_special_tokens):
            assert skip_special_tokens
            return "x" * ids[0]

    vocabulary = HuggingFaceVocabulary(Tokenizer())
    assert (vocabulary.size, vocabulary.stop_tokens, vocabulary.padding) == (7, (2,), 2)
    assert vocabulary.decode(vocabulary.encode("abc")) == "xxx"
    without_end = Tokenizer()
    without_end.eos_token_id = None
    with pytest.raises(ModelUnavailable, match="end-of-text"):
        HuggingFaceVocabulary(without_end)


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelUnavailable, match="pip install transformers"):
        load_model("any")
    with pytest.raises(ModelUnavailable, match="pip install transformers"):
        load_vocabulary("any")


def test_our_decoder_is_exported_under_the_names_of_a_llama(tmp_path):
    model = small_model()
    model.export(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    tensors = load_file(tmp_path / "model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLM"]
    layer = "model.layers.1."
    assert {name.removeprefix(layer) for name in tensors if name.startswith(layer)} == {
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    }
    assert tensors["model.embed_tokens.weight"].shape == (
        config["vocab_size"],
        config["hidden_size"],
    )
    assert tensors[f"{layer}mlp.up_proj.weight"].shape[0] == config["intermediate_size"]
    assert not any("value_head" in name for name in tensors)


needs_library = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed"
)


@needs_library
def test_an_export_gives_the_same_logits_in_the_library(tmp_path):
    from transformers import AutoModelForCausalLM

    model = small_model()
    model.export(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        assert torch.allclose(theirs(tokens).logits, model(tokens).logits, atol=1e-4)


@needs_library
@pytest.mark.parametrize("make", ["GPT2", "Llama"])
def test_a_tiny_random_model_of_the_library_is_loaded_and_sampled(tmp_path, make):
    import transformers

    sizes = {"vocab_size": 11, "bos_token_id": 0, "eos_token_id": 10}
    if make == "GPT2":
        config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **sizes)
        causal = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=32,
            **sizes,
        )
        causal = transformers.LlamaForCausalLM(config)
    causal.save_pretrained(tmp_path)
    model = load_model(str(tmp_path))
    engine = PlainEngine(model)
    engine.submit("p", 0, [1, 2], Parameters(5, seed=0, stop_tokens=(10,)))
    (result,) = drain(engine)
    packed = pack([[1, 2]], [result.tokens], 5)
    with torch.no_grad():
        again = evaluate(model, packed, 1.0).logprobs[0, : len(result.tokens)]
    assert again.tolist() == pytest.approx(result.logprobs, abs=1e-4)
