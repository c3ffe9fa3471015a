"""What befalls a job's attempts, as lines for somebody who waits: what began, what ended and why.

Told from two states of the job, however many changes lie between them; nothing is told twice.
"""

import re
from collections.abc import Mapping
from typing import Any

from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.cli import jobs
from clusterops.cli.output import clock, counted, number

Json = Mapping[str, Any]

# The operator's words about a failure begin with the rank to blame.
_RANK = re.compile(r"\brank (\d+)\b")
# Nobody failed: what was printed matters less than that it goes on.
_QUIET = (Cause.COMPLETED, Cause.SUSPENDED, Cause.CANCELLED, Cause.PREEMPTED, Cause.EVICTED)


def log_command(job: Json, attempt: Json, *, namespace: str | None = None) -> str:
    """The command that prints what the rank to blame for an attempt's end has printed.

    `namespace` is the one that commands use by default; another is named.
    """
    metadata = job["metadata"]
    words = ["clusterops logs", metadata["name"]]
    if metadata.get("namespace") not in (namespace, None):
        words.append(f"-n {metadata['namespace']}")
    return " ".join([*words, f"--rank {blamed_rank(attempt)} --attempt {attempt['number']}"])


def blamed_rank(attempt: Json) -> int:
    """The rank that the operator blames for an attempt's end; 0 where it names none."""
    blamed = _RANK.search(attempt.get("message") or "")
    return int(blamed[1]) if blamed else 0


def failed(attempt: Json) -> bool:
    """Whether an attempt has ended in a way that its log may explain."""
    ran = bool(attempt.get("startedAt") or attempt.get("cause") == Cause.USER_ERROR)
    return bool(attempt.get("endedAt")) and ran and attempt.get("cause") not in _QUIET


def told(before: Json | None, after: Json, *, namespace: str | None = None) -> list[str]:
    """The lines between two states of a job; `before` None: the first that is seen."""
    was = (before or {}).get("status") or {}
    status = after.get("status") or {}
    known = {attempt["number"]: attempt for attempt in was.get("attempts") or ()}
    lines = []
    for attempt in status.get("attempts") or ():
        seen = known.get(attempt["number"], {})
        if before is not None or attempt is status["attempts"][-1]:
            lines += _attempt_lines(seen, attempt, after, namespace)
    state = _state_line(after)
    if state and (before is None or state != _state_line(before)):
        lines.append(state)
    return lines


def _attempt_lines(seen: Json, attempt: Json, job: Json, namespace: str | None) -> list[str]:
    name = f"attempt {attempt['number']}"
    lines = []
    if attempt.get("startedAt") and not seen.get("startedAt") and not attempt.get("endedAt"):
        nodes = ", ".join(dict.fromkeys(attempt.get("nodes") or ()))
        lines.append(f"{name} runs{f' on {nodes}' if nodes else ''}")
    if attempt.get("endedAt") and not seen.get("endedAt"):
        cause = next((each for each in Cause if each == attempt.get("cause")), None)
        message = attempt.get("message") or (cause.sentence if cause else "it ended")
        lost = jobs.loss_words(attempt)
        cost = f", {lost}" if lost else ""
        line = f"{name} ended ({cause or 'unknown'}{cost}): {message}"
        if failed(attempt):
            line += f"; its log: {log_command(job, attempt, namespace=namespace)}"
        lines.append(line)
    return lines


def _state_line(job: Json) -> str:
    """The job's state, where the lines about its attempts do not say it all; empty where they do."""
    status = job.get("status") or {}
    phase = jobs.phase_of(dict(job))
    why = jobs.reason_sentence(dict(status))
    if phase in (Phase.RUNNING, Phase.ADMITTED) or not why:
        return ""
    if phase is Phase.CHECKPOINTING and not _asked_to_leave(status):
        return ""  # it has failed, and the line about the attempt's end follows
    if phase is Phase.REQUEUED and status.get("attempts"):
        why = _wait_words(status)
    if phase is Phase.STARTING and status.get("reason") == WaitReason.WAITING_FOR_PODS:
        why = WaitReason.WAITING_FOR_PODS.sentence  # how many are ready is soon told otherwise
    if not phase.final:
        return f"{phase}, {why}"
    total = (status.get("counts") or {}).get("attempts") or status.get("attempt") or 0
    after = f"after {counted(total, 'attempt')}" if total else ""
    words = (str(phase), why, after, jobs.progress_words(dict(status)))
    return ", ".join(word for word in words if word)


def _asked_to_leave(status: Json) -> bool:
    attempts = status.get("attempts") or []
    return bool(attempts) and attempts[-1].get("cause") in _QUIET


def _wait_words(status: Json) -> str:
    """What a job between two attempts waits for; its message repeats the last attempt's end."""
    nth = number((status.get("attempt") or 0) + 1)
    until = status.get("backoffUntil")
    if until:
        return f"attempt {nth} begins after {clock(until)}"
    return f"it waits for its quota to begin attempt {nth}"
