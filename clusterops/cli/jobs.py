"""One job as commands need it: found by name, its outcome, its sentences, waited for."""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from clusterops.api.names import TRAINING_JOBS
from clusterops.api.reasons import Cause, Phase, WaitReason
from clusterops.api.spelling import closest
from clusterops.cli import errors, watching
from clusterops.cli.connection import Session, leads_elsewhere
from clusterops.cli.output import counted, duration, number, parse_time
from clusterops.kube.errors import NotFound

_OUTCOMES = {
    Phase.SUCCEEDED: errors.DONE,
    Phase.FAILED: errors.JOB_FAILED,
    Phase.CANCELLED: errors.JOB_CANCELLED,
}


async def find(session: Session, name: str) -> dict[str, Any]:
    """The job of that name in the session's namespace.

    Raises:
        CommandError: there is none; a similar name is suggested.
    """
    if leads_elsewhere(name):
        hint = "see `clusterops queue`"
        raise errors.CommandError(f"no job can have the name {name!r}", hint, errors.USAGE)
    try:
        return await session.client.get(TRAINING_JOBS, session.namespace, name)
    except NotFound as error:
        if not error.details.get("name"):
            raise  # the kind itself is unknown there
        page = await session.client.list_page(TRAINING_JOBS, session.namespace, limit=500)
        names = [item["metadata"]["name"] for item in page.items]
        meant = closest(name, names)
        hint = f"did you mean {meant}?" if meant else "see `clusterops queue` (-A: every namespace)"
        raise errors.CommandError(
            f"there is no job {name} in namespace {session.namespace}", hint, errors.NOT_FOUND
        ) from error


def behind(workload: str) -> str:
    """The job behind a Workload of ours: `trainingjob-NAME-8hexdigits`; others keep their name."""
    ours = re.fullmatch(rf"{TRAINING_JOBS.kind.lower()}-(.+)-[0-9a-f]{{8}}", workload)
    return ours[1] if ours else workload


def phase_of(job: dict[str, Any]) -> Phase:
    """The phase in status; Pending while the operator has not seen the job."""
    text = (job.get("status") or {}).get("phase")
    return next((phase for phase in Phase if phase == text), Phase.PENDING)


def outcome(job: dict[str, Any] | None) -> int:
    """The exit code of `--wait` for a job as it is; None = it was deleted."""
    if job is None:
        return errors.JOB_CANCELLED
    return _OUTCOMES.get(phase_of(job), errors.JOB_NOT_FINISHED)


def reason_sentence(status: dict[str, Any]) -> str:
    """Why the job waits or ended, with the operator's message; empty when there is nothing to say."""
    reason, message = status.get("reason") or "", status.get("message") or ""
    known = next((each for each in (*WaitReason, *Cause) if each == reason), WaitReason.NONE)
    sentence = known.sentence
    if sentence and message and message != sentence:
        return message if sentence in message else f"{sentence}: {message}"
    return message or sentence or reason


def progress_words(status: dict[str, Any]) -> str:
    """`step 3,100 of 10,000, saved up to 3,050`; empty before the first report."""
    progress = status.get("progress") or {}
    if progress.get("step") is None:
        return ""
    words = f"step {number(progress['step'])}"
    if progress.get("totalSteps"):
        words += f" of {number(progress['totalSteps'])}"
    if progress.get("durableStep") is not None:
        words += f", saved up to {number(progress['durableStep'])}"
    return words


def loss_words(attempt: Mapping[str, Any]) -> str:
    """What an ended attempt lost: `50 steps lost`; empty where nothing is to be said of it."""
    if attempt.get("lostSteps") is not None:
        return f"{counted(attempt['lostSteps'], 'step')} lost"
    began, ended = (parse_time(attempt.get(key)) for key in ("startedAt", "endedAt"))
    if began is None or ended is None:
        return ""
    ran = duration((ended - began).total_seconds())
    return f"it does not report its steps: all {ran} since its start count as lost"


def headline(job: dict[str, Any]) -> str:
    """The job's state in one line: `Running, step 10 of 50`."""
    status = job.get("status") or {}
    words = [str(phase_of(job)), reason_sentence(status), progress_words(status)]
    return ", ".join(word for word in words if word)


async def until_final(
    session: Session,
    name: str,
    *,
    timeout_seconds: float | None = None,
    on_change: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any] | None:
    """Waits for the job's end; the job as it then is, None when it was deleted.

    `on_change` is called with each new state.

    Raises:
        TimeoutError: it has not ended in time; the text says in what state it is.
    """
    last: dict[str, Any] | None = None
    try:
        async with asyncio.timeout(timeout_seconds):
            following = watching.changes(
                session.client,
                TRAINING_JOBS,
                session.namespace,
                field_selector=f"metadata.name={name}",
            )
            async with aclosing(following) as states:
                async for change in states:
                    if change.gone:
                        return None
                    last = change.object
                    if on_change is not None:
                        on_change(last)
                    if phase_of(last).final:
                        return last
    except TimeoutError:
        state = headline(last) if last else "not seen"
        raise TimeoutError(f"{name} has not ended after {timeout_seconds:.0f} s: {state}") from None
    raise AssertionError("unreachable: changes never end by themselves")
