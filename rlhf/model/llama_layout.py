"""Our decoder as Hugging Face's Llama: `config.json` and `model.safetensors`, names and all."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from rlhf.model.shape import Shape

VALUE_HEAD = "value_head."
NORM_EPS = 1e-5


def write_llama(folder: Path, shape: Shape, state: Mapping[str, Tensor]) -> None:
    """Writes the two files. The value head is left out: no other program knows it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_base,
        "rms_norm_eps": NORM_EPS,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {
        f"model.{name}": tensor.detach().contiguous().cpu()
        for name, tensor in state.items()
        if not name.startswith(VALUE_HEAD)
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
