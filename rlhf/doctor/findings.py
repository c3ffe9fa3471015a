"""What a diagnosis is made of: findings in sentences, each a fault or something to know."""

from enum import IntEnum
from typing import Any, NamedTuple


class Gravity(IntEnum):
    """How bad a finding is; the verdict is the gravest one."""

    NOTE = 0
    WARNING = 1
    FAULT = 2


class Finding(NamedTuple):
    """One thing that was found. `rank` orders findings of equal gravity: causes before effects."""

    gravity: Gravity
    topic: str
    sentence: str
    rank: int = 50


class Section(NamedTuple):
    """The outcome of one analysis: figures for people and programs, and findings."""

    topic: str
    figures: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    lines: tuple[str, ...] = ()


BINDING, ORDER, FAILURE, STALL = 10, 20, 30, 40


def fault(topic: str, sentence: str, rank: int = 50) -> Finding:
    """Something is wrong."""
    return Finding(Gravity.FAULT, topic, sentence, rank)


def warning(topic: str, sentence: str, rank: int = 50) -> Finding:
    """Something should be looked at."""
    return Finding(Gravity.WARNING, topic, sentence, rank)
