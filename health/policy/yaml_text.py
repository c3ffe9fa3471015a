"""Policy files from YAML text: laid over the shipped one, checked, with the place of each mistake.

Refused: unknown keys, keys twice, anchors, rules that contradict one another. Text comes in; nothing
here opens a file.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec
import yaml

from health.policy.schema import CodeSet, Policy

MAX_CHARACTERS = 1 << 20
_NAMED = {"causes": "name", "thresholds": "name", "overrides": "code"}


class PolicyError(Exception):
    """A policy is wrong; says where and what was expected."""


class _StrictLoader(yaml.SafeLoader):
    """YAML without keys that are given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = getattr(key, "value", None)
            if isinstance(name, str) and name in seen:
                line = key.start_mark.line + 1
                raise PolicyError(f"line {line}: the key {name!r} is given twice")
            seen.add(name if isinstance(name, str) else id(key))
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call] # untyped in the stubs
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise PolicyError(f"line {event.start_mark.line + 1}: anchors are not allowed")
        return super().compose_node(parent, index)


def policy(text: str, shipped: str | None = None) -> Policy:
    """A policy from its text, laid over the shipped one when that is given.

    Raises:
        PolicyError: the text is no YAML, has a wrong key or value, or contradicts itself.
    """
    value = _document(text)
    if shipped is not None:
        value = _laid_over(_document(shipped), value)
    try:
        found = msgspec.convert(value, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{error}") from error
    complaints = contradictions(found)
    if complaints:
        raise PolicyError("; ".join(complaints))
    return msgspec.structs.replace(
        found,
        causes=tuple(rule for rule in found.causes if not rule.disabled),
        thresholds=tuple(each for each in found.thresholds if not each.disabled),
    )


def _document(text: str) -> dict[str, Any]:
    if len(text) > MAX_CHARACTERS:
        raise PolicyError(f"more than {MAX_CHARACTERS} characters")
    try:
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 a SafeLoader, and stricter
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise PolicyError(f"no YAML: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PolicyError("a policy is a mapping of sections")
    return value


def _laid_over(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for section, value in own.items():
        below = merged.get(section)
        if section in _NAMED and isinstance(value, list) and isinstance(below, list):
            merged[section] = _by_name(section, below, value)
        elif isinstance(value, dict) and isinstance(below, dict):
            merged[section] = {**below, **value}
        elif value is not None:
            merged[section] = value
    return merged


def _by_name(section: str, base: list[Any], own: list[Any]) -> list[Any]:
    key = _NAMED[section]
    rows: dict[Any, Any] = {}
    for row in base:
        rows[row[key]] = row
    mine: list[str] = []
    for row in own:
        if not isinstance(row, dict) or not isinstance(row.get(key), str):
            raise PolicyError(f"{section}: each entry is a mapping with {key!r}")
        if row[key] in mine:
            raise PolicyError(f"{section}: {row[key]!r} is given twice")
        mine.append(row[key])
        rows[row[key]] = {**rows.get(row[key], {}), **row}
    return list(rows.values())


def contradictions(found: Policy) -> list[str]:
    """What in a policy cannot all be meant, in words; empty when it is sound."""
    said = _repeated(found)
    for group in (found.causes, found.thresholds):
        for rule in group:
            ranges = rule.codes if hasattr(rule, "codes") else (*rule.effects, *rule.causes)
            said += [f"{rule.name}: {each} runs backwards" for each in ranges if _backwards(each)]
    if found.grouping.quiet_seconds < found.grouping.silence_seconds:
        said.append("grouping: quiet_seconds is shorter than silence_seconds")
    if found.grouping.same_cause_seconds > found.grouping.silence_seconds:
        said.append("grouping: same_cause_seconds is longer than silence_seconds")
    said += [
        f"threshold {each.name}: its window is longer than history_seconds"
        for each in found.thresholds
        if each.window_seconds > found.grouping.history_seconds and not each.disabled
    ]
    return said + _weaker_with_more(found) + _circles(found)


def _repeated(found: Policy) -> list[str]:
    names = {
        "causes": [rule.name for rule in found.causes],
        "thresholds": [rule.name for rule in found.thresholds],
        "overrides": [rule.code for rule in found.overrides],
    }
    return [
        f"{section}: {name!r} is given twice"
        for section, all_names in names.items()
        for name in sorted(set(all_names))
        if all_names.count(name) > 1
    ]


def _backwards(pattern: str) -> bool:
    first, _, last = pattern.partition(":")[2].partition("-")
    return first.isdigit() and last.isdigit() and int(first) > int(last)


def _weaker_with_more(found: Policy) -> list[str]:
    """More of the same must not call for less."""
    said = []
    for few in found.thresholds:
        for many in found.thresholds:
            alike = (few.counted, few.scope, few.variant, few.same_place, few.others_quiet) == (
                many.counted, many.scope, many.variant, many.same_place, many.others_quiet
            )  # fmt: skip
            if (
                alike
                and few.at_least < many.at_least
                and few.window_seconds >= many.window_seconds
                and few.action.severity > many.action.severity
                and CodeSet(few.codes).meets(CodeSet(many.codes))
                and not (few.disabled or many.disabled)
            ):
                said.append(
                    f"thresholds: {many.name} ({many.at_least}) calls for less than "
                    f"{few.name} ({few.at_least})"
                )
    return said


def _circles(found: Policy) -> list[str]:
    """Two faults must not explain each other."""
    rules = [rule for rule in found.causes if not rule.disabled and "*" not in rule.causes]
    sets = [(rule, CodeSet(rule.effects), CodeSet(rule.causes)) for rule in rules]
    return [
        f"causes: {one.name} and {other.name} explain each other"
        for place, (one, effects, causes) in enumerate(sets)
        for other, other_effects, other_causes in sets[place:]
        if effects.meets(other_causes) and causes.meets(other_effects)
    ]
