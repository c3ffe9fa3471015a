"""Real lines of kernel logs with the right action, and what was known around each.

`lines.jsonl` holds the lines; `contexts.json`, by the line's id, what happened near it: neighbouring
lines, each with its offset in seconds, and the ends of jobs. Nothing in a context names an action.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from health import classify, shipped
from health.actions import Action
from health.events import Ending, Event, JobEnded, PciAddress
from health.fold.history import History
from health.parse import forms, lines
from health.verdict.node import judge_node

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "health"
START = 10_000_000.0


class Example(msgspec.Struct, frozen=True):
    """A real line and what is right for it."""

    id: int
    line: str
    kind: str
    code: int | None
    gpu: str | None
    action: Action
    source: str


def examples() -> list[Example]:
    text = (FOLDER / "lines.jsonl").read_text(encoding="utf-8")
    return [msgspec.json.decode(line, type=Example) for line in text.splitlines()]


def contexts() -> dict[str, Any]:
    return json.loads((FOLDER / "contexts.json").read_text(encoding="utf-8"))


def alone(example: Example) -> classify.LineVerdict:
    judge = classify.judge_for(shipped.catalogue(), None, shipped.policy())
    return classify.line_verdict(example.id, lines.line(example.line), judge)


def in_context(example: Example, context: dict[str, Any]) -> Action:
    """The action for the line when what happened around it is known."""
    policy = shipped.policy()
    history = History(classify.judge_for(shipped.catalogue(), None, policy), policy)
    seen = None
    for at, what, text, is_target in sorted(
        _happenings(example, context), key=lambda each: each[0]
    ):
        observation = history.add(Event(START + at, what, "boot", text=text))
        seen = observation if is_target else seen
    findings = [each for incident in judge_node(history).incidents for each in incident.findings]
    return next((each.action for each in findings if each.observation is seen), Action.NONE)


def _happenings(
    example: Example, context: dict[str, Any]
) -> Iterator[tuple[float, Any, str, bool]]:
    target = lines.line(example.line)
    if target.what is not None:
        yield 0.0, target.what, example.line, True
    for near in context["lines"]:
        what = lines.line(near["line"]).what
        assert what is not None, near["line"]
        for number in range(near.get("times", 1)):
            yield near["at"] + number * near.get("every", 0.0), what, near["line"], False
    for job in context.get("jobs", ()):
        gpus = tuple(address(gpu) for gpu in job["gpus"])
        yield job["at"], JobEnded(job["job"], Ending(job["how"]), gpus), "", False


def address(text: str) -> PciAddress:
    domain, bus, rest = text.split(":")
    return forms.address(domain, bus, rest.split(".")[0])


def matrix(pairs: list[tuple[Action, Action]]) -> str:
    """A confusion matrix as text: a row for what is right, a column for what was said."""
    names = [action.value for action in Action]
    width = max(len(name) for name in names) + 1
    rows = ["right \\ said".ljust(width) + "".join(name.rjust(width) for name in names)]
    for right in Action:
        counts = [sum(pair == (right, said) for pair in pairs) for said in Action]
        rows.append(right.value.ljust(width) + "".join(str(count).rjust(width) for count in counts))
    hits = sum(right == said for right, said in pairs)
    return "\n".join([*rows, f"{hits} of {len(pairs)} right ({100 * hits / len(pairs):.1f} %)"])


def report() -> str:
    """Both confusion matrices, as the repository keeps them."""
    known, around = examples(), contexts()
    single = [(each.action, alone(each).action) for each in known]
    folded = [(each.action, in_context(each, around[str(each.id)])) for each in known]
    return f"each line alone\n{matrix(single)}\n\nwith context\n{matrix(folded)}\n"
