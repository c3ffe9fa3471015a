"""The whole repository against the rules of its style."""

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.tidy_rules import RULES
from support.tidy_source import ROOT, Finding, python_sources, repository_files
from support.tidy_text import TEXT_RULES

EXCEPTIONS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "exceptions.toml").read_text(encoding="utf-8")
)


def unexcused(rule: str, findings: Iterable[Finding]) -> list[str]:
    """What breaks the rule without being named, and what is named without breaking it."""
    allowed = EXCEPTIONS.get(rule, {})
    used: list[str] = []
    wrong = []
    for finding in findings:
        entry = next((key for key in (finding.key, finding.path) if key in allowed), None)
        if entry is None:
            wrong.append(str(finding))
            continue
        used.append(entry)
        limit = allowed[entry].get("limit", 0) if isinstance(allowed[entry], dict) else None
        if limit is not None and finding.size > limit:
            wrong.append(f"{finding} - and more than its exception of {limit}")
    wrong += [
        f"{entry} no longer needs its exception from {rule}: remove it"
        for entry in allowed
        if entry not in used
    ]
    return wrong


def test_every_file_keeps_every_rule() -> None:
    """One test for all rules: the trees of the whole repository are parsed by one worker, once."""
    wrong = {
        str(rule.__doc__): unexcused(
            rule.__name__, [finding for source in python_sources() for finding in rule(source)]
        )
        for rule in RULES
    }
    broken = [f"{rule}\n" + "\n".join(found) for rule, found in wrong.items() if found]
    assert not broken, "\n\n".join(broken)


@pytest.mark.parametrize("rule", TEXT_RULES, ids=lambda rule: rule.__name__)
def test_every_text_keeps_the_rule(rule: Callable[[str, str], Iterable[Finding]]) -> None:
    found = [
        finding
        for path in repository_files()
        for finding in rule(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    wrong = unexcused(rule.__name__, found)
    assert not wrong, f"{rule.__doc__}\n" + "\n".join(wrong)


def test_exceptions_belong_to_known_rules_and_give_a_reason() -> None:
    known = [rule.__name__ for rule in (*RULES, *TEXT_RULES)]
    assert [rule for rule in EXCEPTIONS if rule not in known] == []
    for entries in EXCEPTIONS.values():
        for key, entry in entries.items():
            reason = entry["reason"] if isinstance(entry, dict) else entry
            assert len(reason.split()) >= 2, f"{key} needs a reason"
