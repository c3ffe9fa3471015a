"""The last lines that the rank to blame for a user's error has printed: most often they say it all."""

import asyncio
from collections.abc import Mapping
from typing import Any

from clusterops.api.reasons import Cause
from clusterops.cli import attempt_lines, kept_logs, log_stream
from clusterops.cli.connection import Session
from clusterops.kube.errors import BadRequest, KubeError

SHOWN_LINES = 3
# Some of the last lines may be empty.
_READ_LINES = 20
_MOST_CHARACTERS = 300
# They are an extra: nobody waits long for them.
_PATIENCE_SECONDS = 5.0
Json = Mapping[str, Any]


async def of(session: Session, job: Json) -> tuple[str, ...]:
    """At most `SHOWN_LINES` lines of the last attempt that ended, as they were printed: foreign text.

    Empty unless that was the user's error, and where the log cannot be read any more.
    """
    attempts = (job.get("status") or {}).get("attempts") or ()
    ended = [each for each in attempts if each.get("endedAt")]
    if not ended or ended[-1].get("cause") != Cause.USER_ERROR:
        return ()
    number, rank = ended[-1]["number"], attempt_lines.blamed_rank(ended[-1])
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            lines = await _read(session, job, number, rank)
    except (KubeError, OSError, TimeoutError):
        return ()
    return chosen([line.text for line in lines], ended[-1].get("message") or "")


def chosen(lines: list[str], message: str) -> tuple[str, ...]:
    """The last lines that say anything which `message`, about the attempt's end, does not."""
    told = [line.rstrip() for line in lines]
    new = [line for line in told if line and line not in message]
    return tuple(
        line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."
        for line in new[-SHOWN_LINES:]
    )


async def _read(session: Session, job: Json, attempt: int, rank: int) -> list[log_stream.Line]:
    for pod in await log_stream.pods_of(session, job["metadata"]["name"]):
        if (log_stream.attempt_of(pod), log_stream.rank_of(pod)) == (attempt, rank):
            try:
                lines = log_stream.lines_of(session, pod, tail=_READ_LINES)
                return [line async for line in lines]
            except BadRequest:  # it never started
                return []
    kept = [log for log in kept_logs.of_attempt(session, job, attempt) if log.rank == rank]
    return kept_logs.merged(kept, _READ_LINES)
