"""The parser and the judgement on any text: never an error, never a false alarm.

Set HEALTH_FUZZ_SECONDS for a run as long as one likes.
"""

import os
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import health_golden as golden

from health import classify, shipped
from health.actions import Action
from health.parse import lines, stamps
from health.parse.clean import MAX_CHARACTERS
from health.verdict.node import judge_node

JUDGE = classify.judge_for(shipped.catalogue(), None, shipped.policy())
LINES = [each.line for each in golden.examples()]
PIECES = st.sampled_from(
    [
        "NVRM: ", "Xid (PCI:0000:1b:00): ", "nvidia-nvswitch0: ", "SXid (PCI:0000:05:00.0): ", "79, ", "154, ",
        "20034, ", "Fatal, ", "Link 3 ", "pid=1, ", "name=x, ", "\x1b[31m", "\\x0a", "#012", "\n", "\0", "[1.5] ",
        "4,1,2,-;", "fallen off the bus", "GPU 0000:1b:00.0: ", "to 0x2 (", "(0x1 0x2 ", "kernel: ", "a[1]: ", ";", ")",
        "GPU recovery action changed from 0x0 (None) ", "The NVIDIA GPU 0000:b3:00.0", "\u202e", "\U0001f600", "\ud800",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=12).map("".join))


@st.composite
def mutilated(draw: st.DrawFn) -> str:
    """A real line with a part cut out, doubled or replaced."""
    line = draw(st.sampled_from(LINES))
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(line))] * 2)))
    middle = draw(st.one_of(st.just(""), st.just(line[start:end] * 2), TEXTS))
    return line[:start] + middle + line[end:]


def check(text: str) -> None:
    (verdict,) = classify.per_line([text], JUDGE)
    read = lines.line(classify.record_text(text))
    assert (read.what is None) == (read.unused is not None)
    if verdict.kind == "none":
        assert verdict.action is Action.NONE
    if verdict.action in (Action.REBOOT_NODE, Action.HARDWARE_TICKET):
        assert verdict.code is not None
        assert "NVRM" in text or "Xid (" in text
    stamps.Timeline().place(stamps.stamp(read.head))


@given(st.one_of(TEXTS, mutilated()))
@settings(max_examples=150, deadline=None)
def test_any_text_has_a_verdict_and_only_a_report_can_alarm(text: str) -> None:
    check(text)


@given(st.binary(max_size=2000))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_log_without_an_alarm(raw: bytes) -> None:
    history = classify.folded(raw.decode("utf-8", "replace").split("\n"), JUDGE, shipped.policy())
    assert judge_node(history).action is Action.NONE


@given(st.lists(st.one_of(TEXTS, mutilated(), st.sampled_from(LINES)), max_size=40))
@settings(max_examples=40, deadline=None)
def test_any_log_folds_and_folds_to_the_same_again(log: list[str]) -> None:
    first = judge_node(classify.folded(log, JUDGE, shipped.policy()))
    assert judge_node(classify.folded(log, JUDGE, shipped.policy())) == first


@pytest.mark.parametrize("line", LINES)
def test_a_line_cut_anywhere_never_calls_for_more_than_the_whole(line: str) -> None:
    """Nothing graver than a reset appears that was not there, whatever is missing at the end."""
    (whole,) = classify.per_line([line], JUDGE)
    allowed = max(whole.action.severity, Action.RESET_GPU.severity)
    for length in range(len(line)):
        (cut,) = classify.per_line([line[:length]], JUDGE)
        assert cut.action.severity <= allowed, f"{line[:length]!r}: {cut.why}"


@given(st.text(alphabet="NVRM: Xid(PC0123456789abcdef).,;[]#\\x\x1b\n", min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_of_a_text_without_end_the_beginning_is_read(unit: str) -> None:
    text = unit * (2 * MAX_CHARACTERS // len(unit) + 1)
    assert lines.line(text).cut


def test_for_as_long_as_asked() -> None:
    """Mutilated lines and random pieces, by seed; a moment unless HEALTH_FUZZ_SECONDS asks for more."""
    seconds = float(os.environ.get("HEALTH_FUZZ_SECONDS", "1"))
    seed = int(os.environ.get("HEALTH_FUZZ_SEED", "0")) or 1
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        text = chance.choice(LINES)
        for _ in range(chance.randrange(1, 6)):
            start, stop = sorted(chance.randrange(len(text) + 1) for _ in range(2))
            bits = [
                chr(chance.randrange(chance.choice([128, 0xD7FF])))
                for _ in range(chance.randrange(6))
            ]
            text = (
                text[:start]
                + chance.choice(["".join(bits), text[start:stop] * 2, chance.choice(LINES)])
                + text[stop:]
            )
            text = text[:4000]
        try:
            check(text)
        except BaseException as error:
            error.add_note(f"seed {seed}, text {text!r}")
            raise
