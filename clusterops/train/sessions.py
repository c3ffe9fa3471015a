"""The session of a training job: where it resumes, when it saves, and how it is told to leave.

One step boundary after each optimizer step: the ranks agree on what has been asked for, by one small
all-reduce, and all do the same: go on, save, save and leave, or stop because a newer attempt runs.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterops.api.heartbeat import Durable, Heartbeat
from clusterops.train import environment, randomness
from clusterops.train.agreement import Alone, Ranks, TorchRanks, leader_decides, together
from clusterops.train.checkpoint import CheckpointDirectory, Committed, open_directory
from clusterops.train.contents import Contents, generators_of
from clusterops.train.durability import sync_tree
from clusterops.train.errors import ConfigurationError, Leave, StaleAttempt
from clusterops.train.interval import SaveInterval
from clusterops.train.notice import NoticeBoard, TerminationSignal
from clusterops.train.progress import Progress
from clusterops.train.restoring import Restored, restore
from clusterops.train.saving import Saver, Snapshot
from clusterops.train.sections import Section, SectionCut

if TYPE_CHECKING:
    from clusterops.train.heartbeat import Reporter

_LAST_REPORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where training goes on: after `step` steps. `values` are the plain values, restored or as
    given; `fresh` says that there was no checkpoint.
    """

    step: int
    fresh: bool
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """See `session`."""

    total_steps: int | None = None
    checkpoint_dir: Path | None = None
    save_every_steps: int | None = None
    save_every_seconds: float | None = None
    keep: int = 2
    keep_every_seconds: float | None = None
    adopt: bool = False


def session(
    *,
    total_steps: int | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    save_every_steps: int | None = None,
    save_every_seconds: float | None = None,
    keep: int = 2,
    keep_every_seconds: float | None = None,
    adopt: bool = False,
) -> "Session":
    """The session of this process; use it as a context manager. Works without an operator.

    Args:
        total_steps: optimizer steps until the job is finished; None when it ends by itself.
        checkpoint_dir: for runs without an operator. Under one, the directory that the TrainingJob
            declares counts, because it is known to outlive the pod. None there too: nothing is saved.
        save_every_steps: save after so many steps, instead of by time.
        save_every_seconds: save after so many seconds. With neither, the interval follows from what
            a save costs (see `interval`).
        keep: verified checkpoints to keep, at least 2.
        keep_every_seconds: keep one checkpoint for good each time so much training has passed.
        adopt: go on from the checkpoints of a job of another name.

    Raises:
        ConfigurationError: an argument, or what the environment says, is impossible.
    """
    for name, value in (
        ("total_steps", total_steps),
        ("save_every_steps", save_every_steps),
        ("save_every_seconds", save_every_seconds),
        ("keep_every_seconds", keep_every_seconds),
        ("keep", keep),
    ):
        if value is not None and not value > 0:
            raise ConfigurationError(f"{name} must be more than 0, not {value}")
    if save_every_steps is not None and save_every_seconds is not None:
        raise ConfigurationError("give save_every_steps or save_every_seconds, not both")
    return Session(
        SessionOptions(
            total_steps,
            None if checkpoint_dir is None else Path(checkpoint_dir),
            save_every_steps,
            save_every_seconds,
            keep,
            keep_every_seconds,
            adopt,
        )
    )


class _Agreed(NamedTuple):
    """What at least one rank knows at a step boundary; `due` is rank 0's word alone."""

    stale: bool
    failed: bool
    writing: bool
    asked: bool
    leave: bool
    due: bool


class Session:
    """See `session`. Its methods are collective: all ranks call them alike."""

    def __init__(
        self, options: SessionOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock = clock
        self._job = environment.read(os.environ)
        self._ranks: Ranks = Alone()
        self._board = NoticeBoard(clock)
        self._signal = TerminationSignal(self._board)
        self._reporter: Reporter | None = None
        self._contents: Contents | None = None
        self._saver: Saver | None = None
        self._generators: Mapping[str, Any] | None = (
            None  # to restore, or those of before a section
        )
        self._own_checkpoints = False
        self._leave_when_saved = ""
        self._progress = Progress(
            interval=SaveInterval(options.save_every_steps, options.save_every_seconds),
            total_steps=options.total_steps,
            keep_every_seconds=options.keep_every_seconds,
            clock=clock,
        )
        self._ended = False
        self._reported_finished = False
        self.directory: Path | None = self._job.directory or options.checkpoint_dir
        self.metrics: dict[str, Any] = {}

    # What a job may ask.

    @property
    def step(self) -> int:
        """Optimizer steps completed, over all attempts."""
        return self._progress.step

    @property
    def rank(self) -> int:
        """This process among those of the job."""
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        """How many processes train together."""
        return self._ranks.world_size

    @property
    def durable_step(self) -> int | None:
        """The step of the newest checkpoint that is safely on disk."""
        durable = self._progress.durable
        return None if durable is None else durable.step

    @property
    def values(self) -> dict[str, Any]:
        """The plain values given to `resume`; what is in here is saved. Change it at will."""
        return {} if self._contents is None else self._contents.values

    @property
    def finished(self) -> bool:
        """Whether all the work is done: all steps, or `finish` was called."""
        total = self._options.total_steps
        return self._ended or (total is not None and self.step >= total)

    @property
    def longest_unpolled_seconds(self) -> float:
        """The longest time in which a notice could not be served. The grace period must exceed it."""
        return self._progress.longest_unpolled_seconds

    # Begin and end.

    def __enter__(self) -> "Session":
        self._ranks = _ranks_of(self._job.processes)
        self._signal.install()
        if self._job.endpoint is not None:
            # HTTP and TLS are a third of this library's import time, and only needed here.
            from clusterops.train.heartbeat import OperatorClient, Reporter

            client = OperatorClient(self._job.endpoint)
            self._reporter = Reporter(client, self._board, self._heartbeat)
            self._reporter.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._end()
            elif self._saver is not None:
                self._saver.drop()
        finally:
            if self._reporter is not None:
                self._reporter.close(_LAST_REPORT_SECONDS)
            self._signal.restore()

    def resume(
        self, *, strict: bool = True, per_rank: Mapping[str, Any] | None = None, **objects: Any
    ) -> Resumed:
        """Takes the job's objects in, and goes on from the newest checkpoint that verifies, if any.

        Each object with `state_dict` and `load_state_dict` is saved and restored; anything else is
        a plain value, found in `values` afterwards. They must be the same on all ranks; objects that
        differ (a loader's position, for instance) go into `per_rank`. Random number generators are
        always saved, and restored when `steps` begins, so that nothing done in between shifts them.

        Raises:
            ResumeMismatch: the checkpoint does not fit the objects; with `strict` False, objects
                that it lacks start afresh.
            NothingToResume: there are only damaged checkpoints.
            DirectoryRefused: the directory is another job's.
            StaleAttempt: a newer attempt of this job runs.
        """
        if self._contents is not None:
            raise ConfigurationError("resume() is called once, with all objects")
        self._contents = Contents(objects, per_rank or {})
        if self.directory is None:
            return Resumed(self.step, True, self.values)
        directory = self._claimed(self.directory)
        self._saver = Saver(directory, self._ranks, self._on_durable)
        restored = restore(directory, self._ranks)
        if restored is None:
            return Resumed(self.step, True, self.values)
        together(self._ranks, lambda: self._take_over(restored, strict))
        return Resumed(self.step, False, self.values)

    def steps(self) -> Iterator[int]:
        """The steps still to do, numbered from 0 over all attempts. What the loop's body has done is
        a completed step when the next one is asked for.

        Raises:
            Leave: the job was told to leave; its state is durable.
            StaleAttempt: a newer attempt runs.
            SaveFailed: a background save has failed.
        """
        self._begin_training()
        total = self._options.total_steps
        while not self._ended and (total is None or self.step < total):
            with self._progress.loop_step() as number:
                yield number
            if not self._own_checkpoints:
                self._boundary()
            elif self._leave_when_saved:
                raise Leave(self._leave_when_saved)
        self._save_last()

    def report(self, **metrics: Any) -> None:
        """Completes the step; metrics are kept in `metrics` and in the next checkpoint's manifest.

        In a loop over `steps` the save, when it is time to, comes after the whole body, so that
        nothing in the body is left out. In a loop of one's own it comes here.
        """
        self.metrics.update({name: _detached(value) for name, value in metrics.items()})
        if self._progress.complete_step():
            self._boundary()

    def finish(self) -> None:
        """Says that the work is done before `total_steps`, or without one: `steps` ends."""
        self._ended = True

    # Checkpoints of one's own.

    def should_save(self) -> bool:
        """Whether the job, which writes checkpoints itself, should do so now. Call it after each
        step, and `saved` after saving. Not together with `resume` and a directory.

        Raises:
            Leave: the job was told to leave and has saved since, or can't.
            StaleAttempt: a newer attempt runs.
        """
        if self._saver is not None:
            raise ConfigurationError(
                "should_save() is for jobs that write their own checkpoints; this session was given "
                "objects and a directory and saves by itself"
            )
        self._own_checkpoints = True
        self._progress.complete_step()
        if self._leave_when_saved:
            raise Leave(self._leave_when_saved)
        agreed = self._agree()
        self._stop_if_stale(agreed)
        return agreed.asked or agreed.due

    def saved(self, step: int, path: str | os.PathLike[str]) -> None:
        """Says that the job's own checkpoint at `path` (a file or a directory) holds `step` steps.

        Syncs it to stable storage, because the operator relies on it: it may release the job's GPUs
        as soon as it is told.

        Raises:
            OSError: the checkpoint is not there, or can't be synced.
        """
        together(self._ranks, lambda: sync_tree(Path(path)))
        self._note_durable(Durable(step, ""))
        leave, reason = self._mark_served()
        if leave:
            self._leave_when_saved = reason

    @property
    def leaving(self) -> bool:
        """Whether the job was told to leave and its own checkpoint is durable: it should end now."""
        return bool(self._leave_when_saved)

    def resumed_elsewhere(self, step: int) -> None:
        """Says that the job has restored its own checkpoint, of `step` steps, by itself."""
        self._progress.resumed_at(step)

    def save(self) -> None:
        """Saves now and waits until it is durable. Needs `resume` and a directory."""
        if self._saver is None or self._contents is None:
            raise ConfigurationError("save() needs resume(...) and a checkpoint directory")
        self._saver.finish()
        if self.durable_step != self.step:
            self._saver.save_now(self._snapshot())

    @contextmanager
    def section(self, name: str, *, alone: bool = False) -> Iterator[Section]:
        """A long stretch between steps (evaluation, warm-up), that polls for notices.

        Random number generators are put back at its end: what it draws does not change training.
        The objects given to `resume` must not change in it, because it may save them.

        With `alone`, only this rank does it, while the others wait at the step boundary. It then
        can't save by itself: a notice to leave ends the body early, and `cut` says so.
        """
        before = self._generators or randomness.capture()
        pending = self._generators
        self._generators = before
        section = Section(name, self._cut_section if alone else self._boundary)
        try:
            yield section
        except SectionCut:
            section.cut = True
        finally:
            self._generators = pending
            randomness.restore(before)

    # What happens at a step boundary.

    def _boundary(self) -> None:
        self._progress.polled()
        agreed = self._agree()
        self._stop_if_stale(agreed)
        saver = self._saver
        if saver is None:
            if agreed.leave:
                self._leave_without_saving()
            return
        if saver.in_flight and (agreed.failed or not agreed.writing):
            saver.finish()
        if agreed.leave:
            saver.finish()
            self.save()
            raise Leave(self._mark_served()[1])
        if agreed.asked:
            # Save and go on: the operator learns from the next reports when it is durable.
            saver.finish()
            self._mark_served()
            self._save_in_background()
        elif agreed.due and not saver.in_flight:
            self._save_in_background()

    def _agree(self) -> _Agreed:
        notice = self._board.pending()
        saver = self._saver
        flags = [
            bool(self._board.stale),
            saver is not None and saver.failed,
            saver is not None and saver.writing,
            notice is not None,
            notice is not None and notice.then_exit,
            self.rank == 0 and self._progress.save_is_due(),
        ]
        return _Agreed(*(bool(flag) for flag in self._ranks.highest([int(flag) for flag in flags])))

    def _stop_if_stale(self, agreed: _Agreed) -> None:
        if agreed.stale:
            raise StaleAttempt(
                f"{self._board.stale or 'another rank learnt that a newer attempt runs'}; "
                "this attempt commits nothing more and must stop"
            )

    def _mark_served(self) -> tuple[bool, str]:
        """Every rank marks every rank's requests, so that one which arrives late there is not served
        twice. Returns whether to leave, and why.
        """
        notice = self._board.pending()
        mine = None if notice is None else [notice.id, notice.reason, notice.then_exit]
        asked = [one for one in self._ranks.gather(mine) if one is not None]
        self._board.served(one[0] for one in asked)
        leaving = [one[1] for one in asked if one[2]]
        return bool(leaving), leaving[0] if leaving else ""

    def _leave_without_saving(self) -> None:
        """For jobs without checkpoints: there is nothing to wait for. A job that may turn out to
        write its own gets one whole step to call `should_save`.
        """
        if self._progress.steps_here > 1 or self._contents is not None:
            raise Leave(self._mark_served()[1])

    def _cut_section(self) -> None:
        self._progress.polled()
        notice = self._board.pending()
        if self._board.stale or (notice is not None and notice.then_exit):
            raise SectionCut

    # Saving and restoring.

    def _claimed(self, path: Path) -> CheckpointDirectory:
        opened: CheckpointDirectory | None = None

        def claim() -> int:
            path.mkdir(parents=True, exist_ok=True)
            nonlocal opened
            opened = open_directory(
                path.resolve(),
                self._job.identity,
                keep=self._options.keep,
                adopt=self._options.adopt,
            )
            return opened.epoch

        epoch = leader_decides(self._ranks, claim)
        return opened or CheckpointDirectory(path.resolve(), self._job.identity, epoch)

    def _take_over(self, restored: Restored, strict: bool) -> None:
        assert self._contents is not None
        self._contents.load(restored, self.world_size, strict=strict)
        self._generators = generators_of(restored)
        self._progress.resumed(restored.manifest)
        self._note_durable(Durable(restored.committed.step, restored.committed.manifest_sha256))

    def _snapshot(self) -> Snapshot:
        assert self._contents is not None
        generators = self._generators or randomness.capture()
        permanent = self._progress.permanent_is_due()  # before what the manifest says of it
        resume = {
            **self._contents.names(),
            **self._progress.for_manifest(),
            "metrics": {name: _number(value) for name, value in self.metrics.items()},
        }
        return Snapshot(
            step=self.step,
            state=self._contents.encoded(self.rank, generators),
            resume=resume,
            order_digest=self._contents.order_digest,
            permanent=permanent,
        )

    def _save_in_background(self) -> None:
        assert self._saver is not None
        if self.durable_step == self.step:
            return
        started = self._clock()
        self._saver.save_in_background(self._snapshot())
        self._progress.save_began(self._clock() - started)

    def _save_last(self) -> None:
        if self._saver is not None:
            self._saver.finish()
            if self.step > 0 and not self._progress.torn:
                self.save()

    def _begin_training(self) -> None:
        if self._generators is not None:
            randomness.restore(self._generators)
            self._generators = None
        self._progress.begin()

    def _end(self) -> None:
        self._progress.require_training()
        self._save_last()
        if self._leave_when_saved and not self.finished:
            raise Leave(self._leave_when_saved)
        if self._options.total_steps is None:
            self._ended = True
        self._reported_finished = self.finished

    def _on_durable(self, committed: Committed) -> None:
        self._note_durable(Durable(committed.step, committed.manifest_sha256))

    def _note_durable(self, durable: Durable) -> None:
        self._progress.became_durable(durable)
        if self._reporter is not None:
            self._reporter.wake()

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            attempt=self._job.identity.attempt,
            rank=self.rank if self.world_size > 1 else self._job.rank,
            step=self.step,
            total_steps=self._options.total_steps,
            durable=self._progress.durable,
            finished=self._reported_finished,
        )


def _ranks_of(processes: int) -> Ranks:
    """torch.distributed's ranks where the job has started it, else this process alone."""
    import sys

    torch = sys.modules.get("torch")
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return TorchRanks() if torch.distributed.get_world_size() > 1 else Alone()
    if processes > 1:
        raise ConfigurationError(
            f"this job has {processes} processes, and torch.distributed is not initialized: call "
            "train.init_process_group() before train.session(...), so that they agree on what to "
            "save and where to resume"
        )
    return Alone()


def _detached(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value


def _number(value: Any) -> float | str | None:
    """A metric for the manifest: JSON has no infinities."""
    if isinstance(value, str) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return number if abs(number) <= 1.7976931348623157e308 else None
