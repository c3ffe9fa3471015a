"""The decoder: causal, indifferent to padding, equal with and without its cache."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.rlhf_torch_toys import small_model

from rlhf.model.decoder import Cache, Decoder, rotary_table, rotated
from rlhf.model.policy import evaluate, pack
from rlhf.model.shape import Shape

TOKENS = torch.tensor([[1, 2, 3, 4, 5, 6]])


def test_a_token_does_not_see_what_comes_after_it():
    model = small_model()
    changed = TOKENS.clone()
    changed[0, 4:] = 9
    with torch.no_grad():
        before, after = model(TOKENS), model(changed)
    assert torch.allclose(before.logits[0, :4], after.logits[0, :4], atol=1e-6)
    assert not torch.allclose(before.logits[0, 4], after.logits[0, 4], atol=1e-3)


def test_padding_changes_no_log_probability():
    model = small_model()
    prompts, responses = [[1, 2], [3, 4, 5, 6]], [[7, 8], [9, 1, 2]]
    with torch.no_grad():
        together = evaluate(model, pack(prompts, responses, 3), 0.7)
        for row in range(2):
            alone = evaluate(model, pack(prompts[row : row + 1], responses[row : row + 1], 3), 0.7)
            length = len(responses[row])
            assert torch.allclose(
                together.logprobs[row, :length], alone.logprobs[0, :length], atol=1e-6
            )
            assert torch.allclose(
                together.values[row, :length], alone.values[0, :length], atol=1e-6
            )


def test_with_its_cache_it_says_the_same_also_for_rows_of_different_length():
    model = small_model()
    rows = [[1, 2, 3], [6, 7]]
    cache = Cache(model.shape, 2, 8, model.embed_tokens.weight)

    def agrees(output) -> bool:
        full = [model(torch.tensor([row])).logits[0, -1] for row in rows]
        return torch.allclose(output.logits[:, 0], torch.stack(full), atol=1e-5)

    with torch.no_grad():
        padded, lengths = torch.tensor([[1, 2, 3], [6, 7, 0]]), torch.tensor([3, 2])
        assert agrees(model.prefill(padded, lengths, cache))
        for token in (9, 3, 5):
            rows = [[*row, token] for row in rows]
            assert agrees(model.step(torch.tensor([token, token]), lengths, cache))
            lengths = lengths + 1


def test_values_start_at_zero_so_that_first_returns_are_the_rewards():
    model = Decoder(Shape(7, width=16, heads=2, context=16))
    with torch.no_grad():
        assert model(torch.tensor([[1, 2, 3]])).values.abs().max() == 0


def test_weights_are_a_function_of_the_seed_alone():
    torch.manual_seed(1)
    first = Decoder(Shape(7, width=16, heads=2), seed=3)
    torch.manual_seed(2)
    again, other = (
        Decoder(Shape(7, width=16, heads=2), seed=3),
        Decoder(Shape(7, width=16, heads=2), seed=4),
    )
    assert torch.equal(first.embed_tokens.weight, again.embed_tokens.weight)
    assert not torch.equal(first.embed_tokens.weight, other.embed_tokens.weight)


def test_rotary_positions_leave_lengths_alone_and_depend_on_distance_only():
    shape = Shape(5, width=16, heads=2, context=12)
    cosine, sine = rotary_table(shape)
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 8, generator=generator)

    def product(at: int, other: int) -> float:
        turned = rotated(query, (cosine[at], sine[at]))
        return float(turned @ rotated(key, (cosine[other], sine[other])))

    assert rotated(query, (cosine[7], sine[7])).norm() == pytest.approx(
        float(query.norm()), rel=1e-5
    )
    assert product(3, 1) == pytest.approx(product(9, 7), abs=1e-5)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


def test_more_tokens_than_the_context_are_refused():
    with pytest.raises(ValueError, match="context of 32"):
        small_model()(torch.zeros(1, 33, dtype=torch.int64))


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="heads"):
        Shape(5, width=10, heads=4)


@pytest.mark.parametrize(
    ("prompts", "responses"), [([[]], [[1]]), ([[1]], [[]]), ([[1]], [[1, 2, 3, 4]])]
)
def test_rows_without_prompt_or_response_or_too_long_are_refused(prompts, responses):
    with pytest.raises(ValueError, match="a row needs"):
        pack(prompts, responses, 3)


def test_rows_read_back_from_the_tensor_are_those_packed():
    prompts, responses = [[1, 2], [3]], [[4], [5, 6, 7]]
    packed = pack(prompts, responses, 4)
    for rows in (packed, packed.rows(torch.tensor([0, 1]))):
        assert [rows.prompt(row) for row in range(2)] == prompts
        assert [rows.response(row) for row in range(2)] == responses
    assert packed.rows(torch.tensor([0])).tokens.shape == (1, 3)
