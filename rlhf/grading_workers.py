"""Between queue and graders: workers claim samples, have them graded, and hand the answers in.

A call whose deadline has passed is cancelled, so the grader can stop its work and the worker is
free; so is the slower of two calls for one sample, once the other has answered.
"""

import asyncio
from typing import Any

from rlhf.graders.checking import answers_of
from rlhf.graders.protocol import Grader, Sample
from rlhf.identity import Envelope
from rlhf.queue_shell import QueueShell
from rlhf.responses import unpack
from rlhf.reward_queue_types import Claim, Expired, Outcome, Stall

_SHOWN_STACKS = 3


class GradingWorkers:
    """`workers` calls of one grader at once."""

    def __init__(self, queue: QueueShell, grader: Grader, *, workers: int = 8) -> None:
        self._queue = queue
        self._grader = grader
        self._workers = workers
        self._calls: dict[int, dict[int, asyncio.Task[None]]] = {}
        """Calls under way, by slot and attempt."""

    async def run(self) -> None:
        """Works until the end of the stream.

        Raises:
            RunFailed: the run cannot go on (in a group, from each worker).
        """
        self._queue.on_expired.append(self._expired)
        self._queue.on_stall = self.where
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(f"{self._grader.name}#{number}"))
        finally:
            self._queue.on_expired.remove(self._expired)

    def where(self, stall: Stall) -> str:
        """The stacks of the calls that are waited for longest: where they stand."""
        slots = [sample.seq for wait in stall.waits for sample in wait.samples]
        calls = [task for seq in slots for task in self._calls.get(seq, {}).values()]
        return "\n".join(map(_stack_of, calls[:_SHOWN_STACKS]))

    async def _work(self, name: str) -> None:
        while (claim := await self._queue.claim(name)) is not None:
            claims = [claim]
            while len(claims) < self._grader.largest_batch:
                more = self._queue.claim_now(name)
                if more is None:
                    break
                claims.append(more)
            await self._call(claims)

    async def _call(self, claims: list[Claim]) -> None:
        task = asyncio.create_task(self._grade(claims), name=f"grading {claims[0].envelope.seq}")
        for envelope, _, _ in claims:
            self._calls.setdefault(envelope.seq, {})[envelope.attempt] = task
        try:
            # wait, not await: a call that is cancelled must not cancel its worker.
            await asyncio.wait([task])
        finally:
            task.cancel()
            for envelope, _, _ in claims:
                self._forget(envelope)
        if not task.cancelled():
            task.result()

    async def _grade(self, claims: list[Claim]) -> None:
        samples = [sample_of(claim) for claim in claims]
        for answer in await answers_of(self._grader, samples):
            outcome = self._queue.answer(answer.envelope, answer.outcome)
            if outcome is Outcome.APPLIED and len(samples) == 1:
                self._cancel_others(answer.envelope)

    def _cancel_others(self, winner: Envelope) -> None:
        for attempt, task in self._calls.get(winner.seq, {}).items():
            if attempt != winner.attempt:
                task.cancel()

    def _expired(self, expired: Expired) -> None:
        calls = self._calls.get(expired.envelope.seq, {})
        if task := calls.get(expired.envelope.attempt):
            task.cancel()

    def _forget(self, envelope: Envelope) -> None:
        calls = self._calls.get(envelope.seq, {})
        calls.pop(envelope.attempt, None)
        if not calls:
            self._calls.pop(envelope.seq, None)


def sample_of(claim: Claim) -> Sample:
    """What a grader sees of a claim."""
    response = unpack(claim.payload)
    return Sample(
        claim.envelope,
        response.prompt_ids,
        response.response_ids,
        response.prompt,
        response.response,
        response.context,
    )


def _stack_of(task: asyncio.Task[None]) -> str:
    """Where a task waits, outermost call first: asyncio itself shows the outermost alone."""
    lines = [f"{task.get_name()} (most recent call last):"]
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}')
        waiting = waiting.cr_await
    return "\n".join(lines)
