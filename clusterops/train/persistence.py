"""A session's objects in their directory: claimed, resumed, saved now or in the background."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusterops.api.heartbeat import Durable
from clusterops.train import randomness
from clusterops.train.agreement import Ranks, leader_decides, together
from clusterops.train.checkpoint import CheckpointDirectory, Committed, open_directory
from clusterops.train.contents import Contents, generators_of
from clusterops.train.errors import StorageRefused
from clusterops.train.manifest import Identity
from clusterops.train.metrics import plain_number
from clusterops.train.options import SessionOptions
from clusterops.train.progress import Progress
from clusterops.train.restoring import Restored, restore
from clusterops.train.saving import Saver, Snapshot

log = logging.getLogger("clusterops.train")


def claimed(
    path: Path, identity: Identity, options: SessionOptions, ranks: Ranks
) -> CheckpointDirectory:
    """The directory, taken over for this attempt by rank 0, and made where it is missing. Collective.

    Raises:
        DirectoryRefused: it belongs to another job.
        StaleAttempt: a later attempt has been here.
    """
    opened: list[CheckpointDirectory] = []

    def open_it() -> int:
        path.mkdir(parents=True, exist_ok=True)
        opened.append(
            open_directory(path.resolve(), identity, keep=options.keep, adopt=options.adopt)
        )
        return opened[0].epoch

    epoch = leader_decides(ranks, open_it)
    return opened[0] if opened else CheckpointDirectory(path.resolve(), identity, epoch)


class PersistentState:
    """Collective like `Saver`, which does the writing. `on_durable` may be called from a thread."""

    def __init__(
        self,
        directory: CheckpointDirectory,
        contents: Contents,
        ranks: Ranks,
        progress: Progress,
        metrics: Mapping[str, Any],
        on_durable: Callable[[Durable], None],
    ) -> None:
        self._contents = contents
        self._ranks = ranks
        self._progress = progress
        self._metrics = metrics
        self._on_durable = on_durable
        self._directory = directory
        self.problem = ""
        """Why the newest save came to nothing; empty once one is durable. Read by any thread."""
        self._saver = Saver(directory, ranks, self._committed)
        # Those to be restored when training begins; in a section, those of before it.
        self._generators: Mapping[str, Any] | None = None

    def resume(self, *, strict: bool) -> bool:
        """Restores the newest checkpoint that verifies; False when there has never been one.

        Raises:
            ResumeMismatch: it does not fit the objects.
            NothingToResume: there are only damaged ones.
        """
        restored = restore(self._directory, self._ranks)
        if restored is None:
            return False
        together(self._ranks, lambda: self._take_over(restored, strict))
        return True

    def restore_generators(self) -> None:
        """Puts random number generators where they were saved; once, when training begins."""
        if self._generators is not None:
            randomness.restore(self._generators)
            self._generators = None

    @contextmanager
    def saving_generators(self, generators: Mapping[str, Any]) -> Iterator[None]:
        """Within it these are saved in place of the present ones."""
        before = self._generators
        self._generators = before or generators
        try:
            yield
        finally:
            self._generators = before

    @property
    def in_flight(self) -> bool:
        """See `Saver.in_flight`; so are the next two."""
        return self._saver.in_flight

    @property
    def writing(self) -> bool:
        """Whether this rank still writes in the background."""
        return self._saver.writing

    @property
    def failed(self) -> bool:
        """Whether this rank's background save has failed."""
        return self._saver.failed

    def save(self) -> None:
        """Saves this step and waits until it is durable; does nothing when it is already.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: this save has failed; or the one in the background, for a reason that stays.
        """
        self.settle()
        if not self._is_saved():
            self._saver.save_now(self._snapshot())

    def save_in_background(self) -> None:
        """Copies the state and has it written beside training. What the storage refuses is told, and
        comes again with the next save that is due.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: the last one has failed, or this one can't begin, for a reason that stays.
        """
        if self._is_saved():
            return
        started = self._progress.clock()
        try:
            self._saver.save_in_background(self._snapshot())
        except StorageRefused as refusal:
            self._progress.save_postponed()
            self._refused(refusal)
            return
        self._progress.save_began(self._progress.clock() - started)

    def settle(self) -> None:
        """Waits for the background save, if there is one. That the storage refused it is told; there
        is another one to come.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: it has failed for a reason that stays.
        """
        try:
            self._saver.finish()
        except StorageRefused as refusal:
            self._refused(refusal)

    def finish(self) -> None:
        """Waits for the background save, if there is one, when no other will follow.

        Raises:
            StaleAttempt: a newer attempt has taken over.
            SaveFailed: it has failed.
        """
        self._saver.finish()

    def drop(self) -> None:
        """Lets this rank's background save come to its end, for a session that ends by an error."""
        self._saver.drop()

    def _is_saved(self) -> bool:
        durable = self._progress.durable
        return durable is not None and durable.step == self._progress.step

    def _take_over(self, restored: Restored, strict: bool) -> None:
        self._contents.load(restored, self._ranks.world_size, strict=strict)
        self._generators = generators_of(restored)
        self._progress.resumed(restored.manifest)
        self._committed(restored.committed)

    def _refused(self, refusal: StorageRefused) -> None:
        self._progress.save_was_refused()
        if not self.problem and self._ranks.rank == 0:
            log.error(
                "training goes on, but its newest work is not saved: %s. Tried again whenever a save "
                "is due; this is not said again until one succeeds",
                refusal,
            )
        self.problem = str(refusal)

    def _committed(self, committed: Committed) -> None:
        if self.problem and self._ranks.rank == 0:
            log.warning("saving works again: step %d is durable", committed.step)
        self.problem = ""
        self._on_durable(Durable(committed.step, committed.manifest_sha256))

    def _snapshot(self) -> Snapshot:
        permanent = self._progress.permanent_is_due()  # before what the manifest says of it
        resume = {
            **self._contents.names(),
            **self._progress.for_manifest(),
            "metrics": {name: plain_number(value) for name, value in self._metrics.items()},
        }
        generators = self._generators or randomness.capture()
        return Snapshot(
            step=self._progress.step,
            state=self._contents.encoded(self._ranks.rank, generators),
            resume=resume,
            order_digest=self._contents.order_digest,
            permanent=permanent,
        )
