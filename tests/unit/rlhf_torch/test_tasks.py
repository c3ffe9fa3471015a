"""Tasks: prompts are functions of their number, rewards of the texts; what cannot be is refused."""

import itertools
import json

import pytest

from rlhf.tasks.jsonl import JsonLines
from rlhf.tasks.reverse_digits import ReverseDigits, correct_share
from rlhf.tasks.sentiment import NEGATIVE, POSITIVE, Sentiment, known_words
from rlhf.tasks.task import TaskInvalid
from rlhf.tasks.vocabulary import Bytes, Characters

TASKS = [ReverseDigits(seed=1), Sentiment(seed=1)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_prompts_are_functions_of_seed_and_number(task):
    again, other = type(task)(seed=1), type(task)(seed=2)
    assert [task.prompt(n) for n in range(20)] == [again.prompt(n) for n in range(20)]
    assert [task.prompt(n).text for n in range(20)] != [other.prompt(n).text for n in range(20)]
    assert task.reserve(2**63) == again.reserve(2**63)
    assert [task.reserve(n).text for n in range(20)] != [task.prompt(n).text for n in range(20)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_prompts_and_demonstrations_are_in_the_vocabulary(task):
    for number in range(30):
        prompt = task.prompt(number)
        assert task.vocabulary.decode(prompt.ids) == prompt.text
    for one in itertools.islice(task.demonstrations(3), 200):
        ids = (*one.prompt, *one.response)
        assert one.prompt
        assert one.response
        assert max(ids) < task.vocabulary.size
        assert task.vocabulary.padding not in ids


def test_demonstrations_are_a_function_of_their_seed():
    def first(seed):
        return list(itertools.islice(TASKS[0].demonstrations(seed), 10))

    assert first(1) == first(1) != first(2)


@pytest.mark.parametrize(
    ("given", "share"),
    [("54321", 1.0), ("54320", 0.8), ("", 0.0), ("543", 0.6), ("5432112345", 0.5), ("99999", 0.0)],
)
def test_reversed_digits_are_scored_by_position(given, share):
    assert ReverseDigits(seed=0).reward("12345=", given) == share


def test_demonstrations_of_reversal_are_about_half_wrong():
    task = ReverseDigits(seed=0)
    shares = []
    for one in itertools.islice(task.demonstrations(0), 500):
        prompt = task.vocabulary.decode(one.prompt)
        shares.append(correct_share(prompt.rstrip("=")[::-1], task.vocabulary.decode(one.response)))
    assert 0.45 < sum(shares) / len(shares) < 0.56


@pytest.mark.parametrize(
    ("response", "least", "most"),
    [
        (" very good and kind.", 0.5, 0.8),
        (" bad and sad.", -0.6, -0.2),
        (" the topic of the statement.", 0.15, 0.21),
        ("", 0.0, 0.0),
        (" qzx wvk jjq ppx.", 0.0, 0.01),
    ],
)
def test_mood_is_friendly_less_unfriendly_words(response, least, most):
    score = Sentiment(seed=0).reward("The film was", response)
    assert least <= score.reward <= most
    assert set(score.parts) == {"mood", "words"}


def test_the_lexicon_is_of_two_sides_and_its_words_are_known():
    assert not {*POSITIVE} & {*NEGATIVE}
    assert {*POSITIVE, *NEGATIVE} <= known_words()


def lines(path, *entries):
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def jsonl(path, **changes):
    settings = {"vocabulary": Bytes(), "seed": 0, "longest_prompt": 10}
    return JsonLines(path, None, **(settings | changes))


def test_each_prompt_of_a_file_comes_once_an_epoch_in_an_order_of_its_own(tmp_path):
    path = lines(tmp_path / "prompts.jsonl", *({"prompt": f"p{n}", "n": n} for n in range(7)))
    task = jsonl(path)
    epochs = [[task.prompt(7 * epoch + n).context["n"] for n in range(7)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert task.reserve(2**64 - 1).text.startswith("p")


def test_a_line_ends_at_a_line_feed_and_at_nothing_else(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes('{"prompt": "a\u2028b"}\r\n{"prompt": "c\x85d"}\r\n'.encode())
    assert {jsonl(path).prompt(group).text for group in range(2)} == {"a\u2028b", "c\x85d"}


def test_lines_with_a_response_are_demonstrations(tmp_path):
    path = lines(tmp_path / "p", {"prompt": "a", "response": "b"}, {"prompt": "c"})
    task = jsonl(path)
    (one,) = itertools.islice(task.demonstrations(0), 1)
    assert (one.prompt, one.response) == ((97,), (98, 256))
    assert list(jsonl(lines(tmp_path / "q", {"prompt": "c"})).demonstrations(0)) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("{", "line 1"),
        ('{"prompt": "a"}\n[1]', "line 2: a JSON object"),
        ('{"prompt": ""}', "entry 1: `prompt`"),
        ('{"prompt": 3}', "entry 1: `prompt`"),
        ('{"text": "a"}', "entry 1: `prompt`"),
        ('{"prompt": "a"}\n{"prompt": "a text that is long"}', "entry 2: the prompt has 19 tokens"),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_refused_with_its_line(tmp_path, content, told):
    path = tmp_path / "prompts.jsonl"
    path.write_text(content)
    with pytest.raises(TaskInvalid, match=told):
        jsonl(path)


def test_a_missing_file_and_a_letter_without_id_are_refused(tmp_path):
    with pytest.raises(TaskInvalid, match="No such file"):
        jsonl(tmp_path / "none")
    with pytest.raises(TaskInvalid, match="alphabet lacks"):
        jsonl(lines(tmp_path / "p", {"prompt": "aé"}), vocabulary=Characters("ab"))


def test_bytes_give_any_text_back():
    vocabulary = Bytes()
    assert vocabulary.decode(vocabulary.encode("Zoë ✓")) == "Zoë ✓"
    assert vocabulary.decode([104, 105, 256, 257]) == "hi"
    assert vocabulary.decode([0xC3]) == "\N{REPLACEMENT CHARACTER}"


def test_an_alphabet_with_a_letter_twice_is_refused():
    with pytest.raises(ValueError, match="once"):
        Characters("aba")
