"""Models of Hugging Face's own library in the paged engine, and the export that it loads."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import asyncio

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hypothesis import given
from hypothesis import strategies as st
from support.kv_models import engine, mixed_requests, parameters, ran, rescored
from support.rlhf_library_models import library_model, words_tokenizer

from rlhf.engine_choice import engine_for
from rlhf.generation import PlainEngine, drain
from rlhf.kv.architecture import UnsupportedModel, architecture_of
from rlhf.model import tokenizer_files
from rlhf.model.decoder import Decoder
from rlhf.model.huggingface import HuggingFaceVocabulary, load_vocabulary
from rlhf.model.shape import Shape
from rlhf.serving.chat import Message, PlainTemplate
from rlhf.serving.loading import Loaded, load
from rlhf.serving.run import CannotServe, ServeConfig, opened, serve
from rlhf.tasks.vocabulary import Bytes, Characters

FAMILIES = ["Llama", "Mistral", "Qwen2", "Qwen3"]


def generated(model, prompt: list[int], new: int) -> list[int]:
    """The library's own unbatched greedy generation."""
    with torch.inference_mode():
        row = model.causal.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=3,
            pad_token_id=1,
        )
    tokens: list[int] = row[0, len(prompt) :].tolist()
    return tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_the_paged_engine_writes_what_the_librarys_generate_writes(family) -> None:
    model = library_model(family)
    requests = mixed_requests(8, seed=7)
    results = ran(engine(model, block_size=4, blocks=14, chunk=7, headroom=0.0), requests)
    assert sum(result.preemptions for result in results) > 0
    for (_, prompt, wanted), result in zip(requests, results, strict=True):
        assert result.tokens == generated(model, prompt, wanted.max_new_tokens)
        again = rescored(model, prompt, result.tokens, 1.0)
        assert result.logprobs == pytest.approx(again, abs=1e-5)


def test_llama_3s_scaled_positions_are_those_of_the_library() -> None:
    scaled = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 24,
    }
    model = library_model(rope_parameters=scaled)
    prompt = [4 + number % 30 for number in range(50)]
    (result,) = ran(engine(model), [("p", prompt, parameters(12))])
    assert result.tokens == generated(model, prompt, 12)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_depend_on_the_batch_are_refused(kind) -> None:
    model = library_model()
    model.causal.config.rope_parameters = {"rope_type": kind, "rope_theta": 10_000.0}
    with pytest.raises(UnsupportedModel, match="depend on the batch"):
        architecture_of(model)


def test_a_model_of_another_build_gets_the_plain_engine() -> None:
    made = engine_for(library_model("GPT2"), 0)
    assert isinstance(made, PlainEngine)
    made.submit("p", 0, [5, 6], parameters(4))
    assert len(drain(made)[0].tokens) == 4


async def test_a_model_of_another_build_is_not_served_and_it_is_said_why() -> None:
    loaded = Loaded("gpt2", library_model("GPT2"), Bytes(), PlainTemplate())
    config = ServeConfig(port=0)
    with opened(config) as entrance:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with pytest.raises(CannotServe, match="gpt2 cannot be served: models of type 'gpt2'"):
            await serve(loaded, config, asyncio.Event(), ready, entrance=entrance)


def test_weights_changed_in_place_count_from_the_next_step_on() -> None:
    model, other = library_model(), library_model(seed=1)
    paged = engine(model)
    paged.set_weights(1, other.state_dict())
    paged.submit("p", 0, [5, 6, 7], parameters(8))
    (result,) = drain(paged)
    assert result.tokens == generated(other, [5, 6, 7], 8)


TEMPLATE = "{% for one in messages %}{{ one.content }} {% endfor %}w9"


def test_a_models_folder_is_served_with_its_own_template_of_conversations(tmp_path) -> None:
    library_model().export(tmp_path)
    words_tokenizer(tmp_path, template=TEMPLATE)
    loaded = load(tmp_path)
    assert (loaded.name, loaded.version) == (tmp_path.name, None)
    turns = [Message("user", "w5 w6"), Message("assistant", "w7")]
    assert loaded.template.ids(turns, loaded.vocabulary) == [5, 6, 7, 9]
    assert loaded.vocabulary.encode("w5 w6") == [5, 6]
    with pytest.raises(ValueError, match="not in the tokenizer's vocabulary"):
        loaded.vocabulary.encode("w5 never")
    assert loaded.vocabulary.stop_tokens == (3,)


def test_a_model_that_ends_its_turns_with_a_token_of_its_own_stops_there(tmp_path) -> None:
    words_tokenizer(tmp_path)
    assert load_vocabulary(str(tmp_path)).stop_tokens == (3,)
    transformers.GenerationConfig(eos_token_id=[9, 3]).save_pretrained(tmp_path)
    assert load_vocabulary(str(tmp_path)).stop_tokens == (3, 9)


LETTERS = Characters("0123456789=\n .")


def test_an_exported_policy_is_served_and_speaks_its_own_vocabulary(tmp_path) -> None:
    model = Decoder(Shape(LETTERS.size, 32, 2, 4, 64), seed=4).eval()
    model.export(tmp_path)
    tokenizer_files.write(tmp_path, LETTERS)
    loaded = load(tmp_path)
    vocabulary = loaded.vocabulary
    assert (vocabulary.size, vocabulary.stop_tokens, vocabulary.padding) == (
        LETTERS.size,
        LETTERS.stop_tokens,
        LETTERS.padding,
    )
    assert vocabulary.encode("31=\n.") == LETTERS.encode("31=\n.")
    assert vocabulary.decode([3, *LETTERS.stop_tokens, LETTERS.padding, 1]) == "31"
    with pytest.raises(ValueError, match="not in the tokenizer's vocabulary"):
        vocabulary.encode("3x")
    assert loaded.example.prompt == "0123"
    asked = [("p", LETTERS.encode("12="), parameters(6, stop_tokens=LETTERS.stop_tokens))]
    ours, theirs = ran(engine(model), asked), ran(engine(loaded.model), asked)
    assert ours[0].tokens == theirs[0].tokens
    assert loaded.model.causal.generation_config.eos_token_id == LETTERS.stop_tokens[0]


@pytest.fixture(scope="module")
def library_bytes(tmp_path_factory) -> HuggingFaceVocabulary:
    folder = tmp_path_factory.mktemp("bytes")
    tokenizer_files.write(folder, Bytes())
    return load_vocabulary(str(folder))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_bytes_are_the_same_ids_in_the_library(library_bytes, text) -> None:
    if any(name in text for name in (tokenizer_files.STOP, tokenizer_files.PADDING)):
        return
    ids = Bytes().encode(text)
    assert library_bytes.encode(text) == ids
    assert library_bytes.decode([*ids, 256, 257]) == Bytes().decode(ids)
    assert library_bytes.size == Bytes().size
