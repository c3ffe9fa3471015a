"""Small models, references for what an engine must come to, and stand-ins shaped like Llama's kin."""

import random
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlhf.engine import PagedEngine
from rlhf.engine_requests import FullParameters
from rlhf.engine_settings import Settings
from rlhf.generation import PlainEngine, Result, drain
from rlhf.kv.plan import Limits
from rlhf.model.decoder import Decoder, rotated
from rlhf.model.huggingface import HuggingFaceModel
from rlhf.model.language import LanguageModel
from rlhf.model.policy import evaluate, pack
from rlhf.model.shape import Shape
from rlhf.sampling import Parameters

VOCABULARY = 40


def small_model(seed: int = 0, context: int = 96) -> Decoder:
    """Two layers, weights large enough that tokens differ from place to place."""
    model = Decoder(Shape(VOCABULARY, 32, 2, 4, context), seed).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.12, generator=generator)
    return model


def engine(model: LanguageModel | None = None, **more: object) -> PagedEngine:
    """An engine; settings by name, limits by name."""
    names = Limits._fields
    limits = Limits(**{key: more.pop(key) for key in list(more) if key in names})  # type: ignore[arg-type]
    decode = more.pop("decode", None)
    version = more.pop("version", 0)
    settings = Settings(limits=limits, **more)  # type: ignore[arg-type]
    return PagedEngine(model or small_model(), version, settings, decode=decode)  # type: ignore[arg-type]


def parameters(new: int, seed: int = 0, temperature: float = 0.0, **more: object) -> FullParameters:
    """Parameters, greedy unless said otherwise."""
    return FullParameters(new, seed, temperature, **more)  # type: ignore[arg-type]


Asked = tuple[str, list[int], Parameters]


def mixed_requests(
    count: int, seed: int = 0, longest: int = 26, greedy: bool = True
) -> list[Asked]:
    """Prompts around the borders of blocks, of various lengths; some share their beginning."""
    chance = random.Random(f"requests/{seed}")
    common = [chance.randrange(VOCABULARY) for _ in range(40)]
    made: list[Asked] = []
    for number in range(count):
        length = chance.choice([1, 3, 4, 5, 7, 8, 9, 15, 16, 17])
        own = [chance.randrange(VOCABULARY) for _ in range(length)]
        prompt = (common[: chance.choice([0, 8, 16])] + own)[:longest]
        temperature = 0.0 if greedy else chance.choice([0.0, 0.6, 1.0, 1.4])
        more = (
            {} if greedy else {"top_k": chance.choice([0, 7]), "top_p": chance.choice([1.0, 0.9])}
        )
        wanted = parameters(
            chance.randint(1, 18), 1000 + number, temperature, stop_tokens=(3,), **more
        )
        made.append((f"p{number}", prompt, wanted))
    return made


def alone(model: LanguageModel, requests: list[Asked]) -> list[Result]:
    """Each request by itself in the plain engine: what must come out."""
    results = []
    for prompt_id, prompt, wanted in requests:
        plain = PlainEngine(model)
        plain.submit(prompt_id, 0, prompt, wanted)
        results += drain(plain)
    return results


def ran(paged: PagedEngine, requests: list[Asked]) -> list[Result]:
    """All of them at once; results in the order of the requests, every block back."""
    uids = [paged.submit(prompt_id, 0, prompt, wanted) for prompt_id, prompt, wanted in requests]
    by_uid = {result.uid: result for result in drain(paged)}
    paged.audit()
    assert paged.report().memory.reserved == 0
    return [by_uid[uid] for uid in uids]


def rescored(
    model: LanguageModel, prompt: list[int], tokens: list[int], temperature: float
) -> list[float]:
    """Log-probabilities of given tokens by the trainer's forward pass."""
    with torch.inference_mode():
        packed = pack([prompt], [tokens], len(tokens))
        values: list[float] = evaluate(model, packed, temperature or 1.0).logprobs[0].tolist()
        return values


class LlamaNorm(nn.Module):
    """RMS norm, as Llama's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class LlamaAttention(nn.Module):
    """Grouped queries; biases as in Qwen 2, norms of queries and keys as in Qwen 3."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config, width, head = config, config.hidden_size, config.head_dim
        self.scaling = head**-0.5
        bias = config.model_type == "qwen2"
        self.q_proj = nn.Linear(width, config.num_attention_heads * head, bias=bias)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * head, bias=bias)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * head, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * head, width, bias=False)
        if config.model_type == "qwen3":
            self.q_norm, self.k_norm = LlamaNorm(head), LlamaNorm(head)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        rows, tokens, _ = x.shape
        query, key, value = (
            part(x).view(rows, tokens, -1, self.config.head_dim)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        groups = query.shape[1] // key.shape[1]
        attended = functional.scaled_dot_product_attention(
            rotated(query, turn),
            rotated(key, turn).repeat_interleave(groups, dim=1),
            value.repeat_interleave(groups, dim=1),
            is_causal=True,
            scale=self.scaling,
        )
        merged: Tensor = self.o_proj(attended.transpose(1, 2).flatten(2))
        return merged


class LlamaMlp(nn.Module):
    """The gated network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, 2 * width, bias=False)
        self.up_proj = nn.Linear(width, 2 * width, bias=False)
        self.down_proj = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return made


class LlamaLayer(nn.Module):
    """One layer, with the names that the library gives its parts."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config)
        self.mlp = LlamaMlp(config.hidden_size)
        self.input_layernorm = LlamaNorm(config.hidden_size)
        self.post_attention_layernorm = LlamaNorm(config.hidden_size)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn)
        done: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return done


class LlamaRotary(nn.Module):
    """Cosine and sine for positions, [rows, tokens, head width] each."""

    def __init__(self, head: int) -> None:
        super().__init__()
        self.inverse = 10_000.0 ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].double() * self.inverse
        doubled = torch.cat((angles, angles), dim=-1)
        return doubled.cos().to(x.dtype), doubled.sin().to(x.dtype)


class LlamaBody(nn.Module):
    """Embeddings, layers and the last norm."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = LlamaNorm(config.hidden_size)
        self.rotary_emb = LlamaRotary(config.head_dim)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        turn = self.rotary_emb(x, torch.arange(tokens.shape[1])[None])
        for layer in self.layers:
            x = layer(x, turn)
        normed: Tensor = self.norm(x)
        return normed


class LlamaStandIn(nn.Module):
    """A causal model with the modules, names and outputs of the library's Llama."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaBody(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor, **_: object) -> SimpleNamespace:
        hidden = self.model(input_ids)
        return SimpleNamespace(logits=self.lm_head(hidden), hidden_states=(hidden,))


def llama_like(model_type: str = "llama", seed: int = 0, **more: object) -> HuggingFaceModel:
    """A Llama-shaped model: 4 heads of queries over 2 of keys, heads wider than width / heads."""
    settings = {
        "model_type": model_type,
        "hidden_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "max_position_embeddings": 96,
        "vocab_size": VOCABULARY,
        "sliding_window": None,
    }
    causal = LlamaStandIn(SimpleNamespace(**(settings | more)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in causal.parameters():
            parameter.normal_(mean=float(parameter.dim() == 1), std=0.2, generator=generator)
    return HuggingFaceModel(causal)
