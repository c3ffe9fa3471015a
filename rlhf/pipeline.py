"""The process with the event loop: rollout, grading and order, while another process trains.

    python -m rlhf.pipeline FD RUN_FOLDER CHECKPOINT

It answers the trainer's few questions and is never busy for long, so deadlines are kept and the
watchdog watches however long a backward pass takes. CHECKPOINT is what the trainer's checkpoint says of
the stream, as JSON, or nothing.
"""

import asyncio
import contextlib
import datetime
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from rlhf import building, child_process, live_state, messages
from rlhf.canary_grader import CanaryGrader
from rlhf.child_process import begin_child
from rlhf.config.limits import queue_limits, stream_shape
from rlhf.config.resolve import ConfigurationInvalid, read_resolved, run_id_of
from rlhf.frames import AsyncFrames, PeerGone
from rlhf.graders.functions import BadFunction
from rlhf.grading_workers import GradingWorkers
from rlhf.journal import JournalError
from rlhf.queue_shell import QueueShell, RunFailed
from rlhf.reward_queue_types import Batch, Checkpoint
from rlhf.rollout import Rollout, RolloutFailed
from rlhf.run_folder import RunFolder
from rlhf.tasks.task import TaskInvalid

Link = AsyncFrames[messages.FromTrainer]

_WRITE_DOWN_SECONDS = 6.0
"""Less than the trainer waits for this process to end."""


class RolloutProcess:
    """The worker process, started when first needed and again after it was lost or hung."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: child_process.Child | None = None
        self._frames: AsyncFrames[messages.FromRollout] | None = None
        self._asked = False
        """A request is with the process. When nobody waits for it any more, it may not be asked again."""
        self._ending = False
        self.started = 0

    async def generate(self, wanted: messages.Generate) -> messages.Generated:
        """All responses of a request.

        Raises:
            RolloutFailed: it could not; the next request finds it working again.
        """
        if self._asked:
            self.kill()
        frames = self._frames or await self._start()
        self._asked = True
        try:
            await frames.send(wanted)
            answer = await frames.receive()
        except PeerGone as error:
            if not self._ending:
                self.kill()
            raise RolloutFailed(f"the rollout process is gone: {error}") from None
        self._asked = False
        if isinstance(answer, messages.Failure):
            raise RolloutFailed(answer.why)
        return answer

    async def _start(self) -> AsyncFrames[messages.FromRollout]:
        self._child = child_process.start("rlhf.rollout_worker", [str(self._folder)])
        self._frames = await AsyncFrames.over(self._child.link, messages.FromRollout)
        self.started += 1
        return self._frames

    def kill(self) -> None:
        """Ends the process, if there is one."""
        if self._frames is not None:
            self._frames.close()
        if self._child is not None:
            self._child.kill()
        self._child = self._frames = None
        self._asked = False

    async def end(self) -> None:
        """Ends the process. One in the middle of a batch may first write down how far it is."""
        if self._asked and self._child is not None and self._frames is not None:
            self._ending = True
            self._frames.close()  # what it takes for a notice to leave
            await asyncio.to_thread(self._child.end, _WRITE_DOWN_SECONDS)
            self._ending = False
        self.kill()


class Conversation:
    """What the trainer asks, answered one after another."""

    def __init__(self, link: Link, queue: QueueShell, rollout: Rollout) -> None:
        self._link = link
        self._queue = queue
        self._rollout = rollout

    async def run(self) -> None:
        """Until the trainer stops it, or is gone."""
        while not isinstance(asked := await self._link.receive(), messages.Stop):
            if isinstance(asked, messages.Take):
                await self._deliver(asked.timeout_seconds)
            elif isinstance(asked, messages.Trained):
                self._queue.mark_trained(asked.batch)
                await self._link.send(messages.Saved(await self._queue.checkpoint()))
            else:
                await self._queue.compact(asked.oldest_trained)

    async def _deliver(self, timeout_seconds: float) -> None:
        taken = await self._queue.take(timeout_seconds)
        if not isinstance(taken, Batch):
            await self._link.send(messages.End(taken.total))
            return
        queue, rollout = self._queue.queue, self._rollout
        delivery = messages.Delivery(
            batch=taken,
            depth=queue.depth,
            needed_from=queue.needed_versions().start,
            counts=dict(queue.counts),
            rollout_seconds=rollout.generating_seconds,
            generated_tokens=rollout.generated_tokens,
            work=rollout.work,
        )
        rollout.forget_work()
        await self._link.send(delivery)


async def serve(link: Link, folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    """Runs the stream of one run until the trainer stops it.

    Raises:
        RunFailed, TimeoutError: the stream cannot go on.
        JournalError, BadFunction, TaskInvalid, ConfigurationInvalid: it cannot begin.
        PeerGone: the trainer is gone.
    """
    config = read_resolved(folder.config)
    shape = stream_shape(config, run_id_of(folder.config))
    task = building.task(config)
    grader = CanaryGrader(building.grader(config, task), building.canaries(config))
    engine = RolloutProcess(folder.path)
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        async with await QueueShell.open(
            folder.path, shape, queue_limits(config), checkpoint=checkpoint, began=began
        ) as queue:
            queue.end(config.steps * shape.batch_size)
            rollout = Rollout(queue, engine, task, shape, config)
            grading = GradingWorkers(queue, grader, workers=config.grader.workers)
            async with _observed(queue, grading, folder.path):
                await _together(link, queue, rollout, grading)
    finally:
        await engine.end()
        await grader.close()


@contextlib.asynccontextmanager
async def _observed(
    queue: QueueShell, grading: GradingWorkers, folder: Path
) -> AsyncIterator[None]:
    """While it lasts, the folder says what the queue waits for."""

    async def look() -> None:
        while True:
            state = live_state.observed(
                queue.waits(),
                queue.now(),
                delivered=queue.queue.delivered,
                trained=queue.queue.trained,
                depth=queue.queue.depth,
                where=grading.where,
            )
            live_state.write(folder, state)
            await asyncio.sleep(live_state.EVERY_SECONDS)

    looking = asyncio.create_task(look(), name="live state")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        live_state.remove(folder)


async def _together(
    link: Link, queue: QueueShell, rollout: Rollout, grading: GradingWorkers
) -> None:
    """Rollout and grading, for as long as the trainer talks."""
    work = [
        asyncio.create_task(rollout.run(), name="rollout"),
        asyncio.create_task(grading.run(), name="grading"),
    ]
    talk = asyncio.create_task(Conversation(link, queue, rollout).run(), name="conversation")
    try:
        pending = {talk, *work}
        while talk in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {talk}:
                _tell_queue(queue, task)
        talk.result()
    finally:
        for task in (talk, *work):
            task.cancel()
        await asyncio.gather(talk, *work, return_exceptions=True)


def _tell_queue(queue: QueueShell, task: "asyncio.Task[None]") -> None:
    """Whatever ends rollout or grading early ends the run; who waits for a batch is told why."""
    error = task.exception()
    if error is not None and queue.queue.failure is None:
        queue.fail(f"{task.get_name()} ended: {_innermost(error)}")


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def _run(number: str, folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    link: Link = await AsyncFrames.over(begin_child(number), messages.FromTrainer)
    try:
        await serve(link, folder, checkpoint)
    except PeerGone:
        return
    except (
        RunFailed,
        TimeoutError,
        JournalError,
        BadFunction,
        TaskInvalid,
        ConfigurationInvalid,
        OSError,
        ValueError,
    ) as error:
        await link.send(messages.Failure(f"{type(error).__name__}: {error}"))
    finally:
        link.close()


def main(arguments: list[str]) -> int:
    """Serves one run."""
    number, folder_name, saved = arguments
    checkpoint = msgspec.json.decode(saved, type=Checkpoint) if saved else None
    asyncio.run(_run(number, RunFolder(Path(folder_name)), checkpoint))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
