"""YAML to JSON values: the meaning of words, places, and everything that is refused."""

import pytest

from clusterops.api import yaml_source
from clusterops.api.yaml_source import Mark, documents


def value(text: str):
    (document,) = documents(text)
    assert document.flaws == []
    return document.value


def flaws(text: str) -> list[tuple[int, str]]:
    return [(flaw.mark.line, flaw.message) for doc in documents(text) for flaw in doc.flaws]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("1", 1),
        ("-3", -3),
        ("0644", 420),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("yes", True),
        ("Off", False),
        ("y", "y"),
        ("n", "n"),
        ("null", None),
        ("~", None),
        ("12:30", "12:30"),
        ("2026-11-30", "2026-11-30"),
        ("2026-11-30T19:00:00Z", "2026-11-30T19:00:00Z"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("16Gi", "16Gi"),
        ("nvidia.com/gpu", "nvidia.com/gpu"),
        ("=", "="),
        ("09", 9.0),
    ],
)
def test_a_word_means_what_it_means_to_kubectl(text: str, meaning) -> None:
    found = value(f"x: {text}")["x"]
    assert found == meaning
    assert type(found) is type(meaning)


def test_keys_are_text_whatever_they_look_like() -> None:
    assert value("on: 1\n2: b\nnull: c") == {"on": 1, "2": "b", "null": "c"}


def test_places_are_those_of_keys_and_items() -> None:
    (document,) = documents("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n")
    assert document.mark_of(("a", "b")) == Mark(2, 3)
    assert document.mark_of(("a", "c", 1, "y")) == Mark(5, 7)
    assert document.mark_of(("a", "missing", "deeper")) == Mark(1, 1)


def test_several_documents_and_empty_ones() -> None:
    found = documents("a: 1\n---\n---\n# nothing\n---\nb: 2\n...\n")
    assert [document.value for document in found] == [{"a": 1}, {"b": 2}]
    assert documents("") == []
    assert documents("# only a comment\n") == []


def test_json_is_read_with_tabs_too() -> None:
    assert value('{\n\t"a": [1, "x"],\n\t"b": null}') == {"a": [1, "x"], "b": None}


def test_a_character_of_two_escapes_is_one_and_half_a_character_is_refused() -> None:
    assert value('{"\\ud83d\\ude00": "\\ud83d\\ude00"}') == {"\U0001f600": "\U0001f600"}
    assert flaws('{"a": "\\ud83d"}') == [(1, "an escape stands for half a character")]


def test_anchors_and_merges_work() -> None:
    text = (
        "base: &b {x: 1, y: 2}\none: *b\ntwo:\n  <<: *b\n  y: 3\nthree: {<<: [*b, {z: 9, x: 7}]}\n"
    )
    found = value(text)
    assert found["one"] == {"x": 1, "y": 2}
    assert found["two"] == {"x": 1, "y": 3}
    assert found["three"] == {"x": 1, "y": 2, "z": 9}


def test_a_repeated_key_is_named_with_its_first_line() -> None:
    assert flaws("a: 1\nb: 2\na: 3\n") == [(3, "is already in line 1")]


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "!!python/name:os.system",
        "!local x",
        "!!binary aGk=",
        "!!set {a, b}",
        "!!int x",
        ".inf",
        "-.INF",
        ".nan",
        "{[1, 2]: x}",
        "{<<: 3}",
    ],
)
def test_what_json_cannot_hold_is_refused(text: str) -> None:
    assert flaws(f"x: {text}")


@pytest.mark.parametrize(
    "text", ["a: [1", "a: 'x", "\tb: 1", "a: b: c", "- a\nb: 1", "*nobody", "%x\n"]
)
def test_broken_syntax_is_named_with_its_line(text: str) -> None:
    found = flaws(text)
    assert len(found) == 1
    assert found[0][1].startswith("not YAML")


def test_control_characters_are_refused_and_not_echoed() -> None:
    ((line, message),) = flaws("a: 1\nb: \x1b[31m\n")
    assert line == 2
    assert "\x1b" not in message


def test_nesting_is_limited() -> None:
    assert flaws("[" * yaml_source.MAX_DEPTH + "]" * yaml_source.MAX_DEPTH) == []
    deep = "[" * 100_000
    assert "nested deeper" in flaws(deep)[0][1]


def test_aliases_that_multiply_are_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
    )
    assert "values, aliases repeated" in flaws(bomb)[0][1]


def test_many_aliases_and_an_alias_of_itself_are_refused() -> None:
    many = "a: &a 1\nb: [" + ", ".join(["*a"] * (yaml_source.MAX_ALIASES + 1)) + "]"
    assert "aliases" in flaws(many)[0][1]
    assert "nested deeper" in flaws("a: &a [*a]")[0][1]


def test_a_large_text_is_refused_unread() -> None:
    assert flaws("a" * (yaml_source.MAX_BYTES + 1)) == [(1, "larger than 1 MiB")]
