"""Logs of pods that are gone, from the files that this machine's node agents keep for a while.

Only in local mode: there the pods of `down`, of `kubectl delete pod` and of old attempts have no
object any more, and what they printed still lies in the state folder.
"""

import heapq
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from clusterops.api.names import pod_name
from clusterops.cli.connection import Session
from clusterops.cli.log_stream import Line
from clusterops.cli.output import parse_time


class KeptLog(NamedTuple):
    """The files of one rank of one attempt, oldest first."""

    rank: int
    files: tuple[Path, ...]


def find(
    pod_logs: Path, namespace: str, job: str, container: str, attempt: int, not_before: datetime
) -> list[KeptLog]:
    """What is left of an attempt, by rank. Logs that begin before `not_before`, when the job was
    created, are of an earlier job of that name.
    """
    found: dict[int, KeptLog] = {}
    for folder in sorted(pod_logs.glob(f"{namespace}_{job}-{attempt}-*_*")):
        name = folder.name.split("_")[1]
        rank = name.rpartition("-")[2]
        if not rank.isdecimal() or name != pod_name(job, attempt, int(rank)):
            continue
        log = KeptLog(int(rank), tuple(sorted((folder / container).glob("*.log*"), key=_age)))
        first = next(lines(log), None)
        if first is not None and first.moment >= not_before:
            found[log.rank] = log
    return [found[rank] for rank in sorted(found)]


def of_attempt(session: Session, job: Mapping[str, Any], attempt: int) -> list[KeptLog]:
    """What this machine has kept of an attempt whose pods are gone: in local mode it has."""
    if session.local is None:
        return []
    metadata = job["metadata"]
    return find(
        session.local.pod_logs,
        metadata["namespace"],
        metadata["name"],
        job["spec"]["template"]["spec"]["containers"][0]["name"],
        attempt,
        parse_time(metadata.get("creationTimestamp")) or datetime.fromtimestamp(0, UTC),
    )


def _age(file: Path) -> tuple[int, int]:
    """Run and rotation: `0.log.2` is older than `0.log.1`, and that than `0.log`."""
    run, _, rotation = file.name.partition(".log")
    number = rotation.removeprefix(".")
    return (
        int(run) if run.isdecimal() else 0,
        -int(number) if number.isdecimal() else 0,
    )


def lines(log: KeptLog) -> Iterator[Line]:
    """The lines of a rank; the pieces of one that was too long for the format are put together."""
    pieces: dict[str, str] = {}  # by stream: the beginning of a line whose end is yet to come
    moment = datetime.fromtimestamp(0, UTC)
    for file in log.files:
        with file.open(encoding="utf-8", errors="replace", newline="\n") as source:
            for raw in source:
                stamp, stream, tag, words = (*raw.rstrip("\n").split(" ", 3), "", "", "")[:4]
                at = parse_time(stamp)
                if at is None or tag not in ("F", "P"):
                    continue  # the end of a file that was cut by a crash
                moment = max(moment, at)
                text = pieces.pop(stream, "") + words
                if tag == "P":
                    pieces[stream] = text
                else:
                    yield Line(moment, log.rank, text)
    for text in pieces.values():
        yield Line(moment, log.rank, text)


def merged(logs: list[KeptLog], tail: int | None) -> list[Line]:
    """The lines of several ranks by time; `tail`: only so many last ones of each."""
    each = [list(lines(log)) for log in logs]
    cut = each if tail is None else [found[max(0, len(found) - tail) :] for found in each]
    return list(heapq.merge(*cut, key=lambda line: line.moment))
