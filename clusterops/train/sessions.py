"""The session of a training job: where it resumes, when it saves, and how it is told to leave.

One step boundary after each optimizer step: the ranks agree on what has been asked for, by one small
all-reduce, and all do the same: go on, save, save and leave, or stop because a newer attempt runs.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterops.api.heartbeat import Durable, Heartbeat
from clusterops.train import environment, randomness
from clusterops.train.agreement import Alone, Ranks, ranks_of, together
from clusterops.train.boundary import Agreed, agree, mark_served, stop_if_stale
from clusterops.train.contents import Contents, Resumed
from clusterops.train.durability import sync_tree
from clusterops.train.errors import ConfigurationError, Leave
from clusterops.train.interval import SaveInterval
from clusterops.train.metrics import detached
from clusterops.train.notice import NoticeBoard, TerminationSignal
from clusterops.train.options import SessionOptions
from clusterops.train.persistence import PersistentState, claimed
from clusterops.train.progress import Progress
from clusterops.train.sections import Section, SectionCut

if TYPE_CHECKING:
    from clusterops.train.heartbeat import Reporter

_LAST_REPORT_SECONDS = 5.0


class Session:
    """See `opening.session`. Its methods are collective: all ranks call them alike."""

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
        self._state: PersistentState | None = None
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
        self._ranks = ranks_of(self._job.processes)
        self._signal.install()
        if self._job.endpoint is not None:
            # HTTP and TLS are a third of this library's import time, and only needed here.
            from clusterops.train.heartbeat import OperatorClient, Reporter

            client = OperatorClient(self._job.endpoint)
            self._reporter = Reporter(client, self._board, self._heartbeat)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._end()
            elif self._state is not None:
                self._state.drop()
        finally:
            if self._reporter is not None and self._reporter.started:
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
            self._begin_reporting()
            return Resumed(self.step, True, self.values)
        directory = claimed(self.directory, self._job.identity, self._options, self._ranks)
        self._state = PersistentState(
            directory,
            self._contents,
            self._ranks,
            self._progress,
            self.metrics,
            self._note_durable,
        )
        fresh = not self._state.resume(strict=strict)
        self._begin_reporting()
        return Resumed(self.step, fresh, self.values)

    def steps(self) -> Iterator[int]:
        """The steps still to do, numbered from 0 over all attempts. What the loop's body has done is
        a completed step when the next one is asked for.

        Raises:
            Leave: the job was told to leave; its state is durable.
            StaleAttempt: a newer attempt runs.
            SaveFailed: the last save has failed, the one before leaving, or a background save for a
                reason that stays. What a full disk refuses is tried again when a save is next due.
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
        self.metrics.update({name: detached(value) for name, value in metrics.items()})
        self._begin_reporting()
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
        if self._state is not None:
            raise ConfigurationError(
                "should_save() is for jobs that write their own checkpoints; this session was given "
                "objects and a directory and saves by itself"
            )
        self._own_checkpoints = True
        self._begin_reporting()
        self._progress.complete_step()
        if self._leave_when_saved:
            raise Leave(self._leave_when_saved)
        agreed = self._agree()
        stop_if_stale(agreed, self._board)
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
        leave, reason = mark_served(self._ranks, self._board)
        if leave:
            self._leave_when_saved = reason

    @property
    def leaving(self) -> bool:
        """Whether the job was told to leave and its own checkpoint is durable: it should end now."""
        return bool(self._leave_when_saved)

    def resumed_elsewhere(self, step: int) -> None:
        """Says that the job has restored its own checkpoint, of `step` steps, by itself."""
        self._progress.resumed_at(step)
        self._begin_reporting()

    def save(self) -> None:
        """Saves now and waits until it is durable. Needs `resume` and a directory."""
        if self._state is None:
            raise ConfigurationError("save() needs resume(...) and a checkpoint directory")
        self._state.save()

    @contextmanager
    def section(self, name: str, *, alone: bool = False) -> Iterator[Section]:
        """A long stretch between steps (evaluation, warm-up), that polls for notices.

        Random number generators are put back at its end: what it draws does not change training.
        Enter it after `report`: then a notice is served within it, and the objects given to `resume`
        must not change meanwhile. Within a step that is not complete nothing can be saved, and a
        notice to leave ends the body early, as `cut` says; the step boundary then serves it.

        With `alone`, only this rank does it, while the others wait at the step boundary: it can't
        save by itself, and is ended early as well.
        """
        generators = randomness.capture()
        section = Section(name, self._poll_alone if alone else self._poll_section)
        try:
            if self._state is None:
                yield section
            else:
                with self._state.saving_generators(generators):
                    yield section
        except SectionCut:
            section.cut = True
        finally:
            randomness.restore(generators)

    # What happens at a step boundary.

    def _boundary(self) -> None:
        self._progress.polled()
        agreed = self._agree()
        stop_if_stale(agreed, self._board)
        state = self._state
        if state is None:
            if agreed.leave:
                self._leave_without_saving()
            return
        if state.in_flight and (agreed.failed or not agreed.writing):
            state.settle()
        if agreed.leave:
            state.save()
            raise Leave(mark_served(self._ranks, self._board)[1])
        if agreed.asked:
            # Save and go on: the operator learns from the next reports when it is durable.
            state.settle()
            mark_served(self._ranks, self._board)
            state.save_in_background()
        elif agreed.due and not state.in_flight:
            state.save_in_background()

    def _agree(self) -> Agreed:
        due = self.rank == 0 and self._progress.save_is_due()
        return agree(self._ranks, self._board, self._state, due=due)

    def _leave_without_saving(self) -> None:
        """For jobs without checkpoints: there is nothing to wait for. A job that may turn out to
        write its own gets one whole step to call `should_save`.
        """
        if self._progress.steps_here > 1 or self._contents is not None:
            raise Leave(mark_served(self._ranks, self._board)[1])

    def _poll_section(self) -> None:
        if not self._progress.step_is_open:
            self._boundary()
            return
        self._progress.polled()
        agreed = self._agree()
        if agreed.stale or agreed.leave:
            raise SectionCut

    def _poll_alone(self) -> None:
        self._progress.polled()
        notice = self._board.pending()
        if self._board.stale or (notice is not None and notice.then_exit):
            raise SectionCut

    # Inside.

    def _save_last(self) -> None:
        if self._state is not None:
            if self.step > 0 and not self._progress.torn:
                self._state.save()
            else:
                self._state.finish()

    def _begin_training(self) -> None:
        if self._state is not None:
            self._state.restore_generators()
        self._progress.begin()
        self._begin_reporting()

    def _begin_reporting(self) -> None:
        """The first report names the step this attempt begins with; before a resume it is not known."""
        if self._reporter is not None and not self._reporter.started:
            self._reporter.start()

    def _end(self) -> None:
        self._begin_reporting()
        self._progress.require_training()
        self._save_last()
        if self._leave_when_saved and not self.finished:
            raise Leave(self._leave_when_saved)
        if self._options.total_steps is None:
            self._ended = True
        self._reported_finished = self.finished

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
            problem="" if self._state is None else self._state.problem,
        )
