"""The operator's options about nodes with faults: a file of settings, and what is laid over it."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterops.cli.errors import USAGE, CommandError
from clusterops.operator import nodes_config
from clusterops.operator.nodes import RemediationConfig


def config(
    file: Path | None,
    remedy: bool | None,
    programs: Iterable[str],
    tickets: Path | None,
    budgets: Iterable[str],
    namespace: str,
) -> RemediationConfig:
    """What the options ask for; raises CommandError for what cannot work."""
    try:
        told = nodes_config.read(file) if file is not None else {}
        if remedy is not None:
            told["enabled"] = remedy
        _lay_over(told, "programs", dict(_named("--program", each) for each in programs))
        _lay_over(told, "budgets", dict(_named("--budget", each) for each in budgets))
        if tickets is not None:
            told["tickets"] = {"folder": str(tickets)}
        return nodes_config.config(told, namespace=namespace, now=_now)
    except nodes_config.RemediationRefused as refused:
        raise CommandError(str(refused), "see: clusterops operator --help", USAGE) from refused


def _lay_over(told: dict[str, Any], section: str, named: Mapping[str, Any]) -> None:
    below = told.get(section) or {}
    if named and isinstance(below, dict):
        told[section] = {**below, **named}


def _named(option: str, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    try:
        if not (name and equals):
            raise ValueError("NAME=VALUE is needed")
        return name, json.loads(value)
    except ValueError as error:
        raise CommandError(f"{option} {text!r} cannot be read: {error}", "", USAGE) from error


def _now() -> float:
    return datetime.now(UTC).timestamp()
