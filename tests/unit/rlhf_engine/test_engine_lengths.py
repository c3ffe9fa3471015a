"""How long an answer will be."""

from rlhf.engine_lengths import LengthHistory


def test_an_unknown_prompt_is_expected_to_take_all_it_may() -> None:
    assert LengthHistory().predicted("p", 99) == 99


def test_known_prompts_are_expected_to_do_as_before_newer_answers_counting_more() -> None:
    history = LengthHistory(newest=0.5)
    history.observe("p", 10)
    assert history.predicted("p", 99) == 10
    history.observe("p", 20)
    assert history.predicted("p", 99) == 15


def test_the_prompts_not_seen_for_longest_are_forgotten() -> None:
    history = LengthHistory(most=2)
    for name in ("a", "b", "a", "c"):
        history.observe(name, 5)
    assert [history.predicted(name, 0) for name in "abc"] == [5, 0, 5]
