"""How far a session is: steps, seconds, saves. No I/O; time is handed in."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clusterops.api.heartbeat import Durable
from clusterops.train.errors import NothingTrained
from clusterops.train.interval import SaveInterval
from clusterops.train.manifest import Manifest


@dataclass(slots=True)
class Progress:
    """`step` counts completed optimizer steps over all attempts, `steps_here` those of this one."""

    interval: SaveInterval
    total_steps: int | None
    keep_every_seconds: float | None
    clock: Callable[[], float]
    step: int = 0
    steps_here: int = 0
    durable: Durable | None = None
    torn: bool = False
    longest_unpolled_seconds: float = 0.0
    _in_loop: bool = False
    _step_open: bool = False
    _resumed_at: int | None = None
    _begun_at: float | None = None
    _polled_at: float | None = None
    _saved_at: float = 0.0
    _saved_step: int = 0
    _trained_before: float = 0.0
    _permanent_at: float = 0.0
    _permanent_before: float = 0.0

    def resumed(self, manifest: Manifest) -> None:
        """Goes on where a checkpoint was made."""
        self.resumed_at(manifest.step)
        self._trained_before = float(manifest.resume.get("trainedSeconds", 0.0))
        self._permanent_at = float(manifest.resume.get("permanentAtSeconds", 0.0))

    def resumed_at(self, step: int) -> None:
        """Goes on after this step; 0 is a fresh start."""
        self.step = self._saved_step = step
        self._resumed_at = step or None

    def begin(self) -> None:
        """Training starts now; time before it does not count."""
        self._begun_at = self._saved_at = self._polled_at = self.clock()

    @contextmanager
    def loop_step(self) -> Iterator[int]:
        """One pass of a loop's body. `torn` stays True when the body was left in the middle."""
        self._in_loop = self._step_open = self.torn = True
        try:
            yield self.step
        finally:
            # Leaving by break or by an exception ends here too, and then the step stays torn,
            # unless it was reported as complete.
            self._in_loop = False
            self.torn = self._step_open
        self._complete()

    def complete_step(self) -> bool:
        """Counts a step once; says whether the boundary is to follow at once: outside of a loop over
        `steps`.
        """
        if self._in_loop:
            self._complete()
            return False
        if self._begun_at is None:
            self.begin()
        self._step_open = True
        self._complete()
        return True

    @property
    def step_is_open(self) -> bool:
        """Whether a loop's body is between its beginning and its report."""
        return self._in_loop and self._step_open

    def polled(self) -> None:
        """A notice would have been served at this moment."""
        now = self.clock()
        if self._polled_at is not None:
            self.longest_unpolled_seconds = max(
                self.longest_unpolled_seconds, now - self._polled_at
            )
        self._polled_at = now

    def save_is_due(self) -> bool:
        """Whether the interval since the last save has passed."""
        return self.interval.is_due(self.step - self._saved_step, self.clock() - self._saved_at)

    def save_began(self, blocked_seconds: float) -> None:
        """A background save has begun, and training stood still so long for it."""
        self.save_postponed()
        self.interval.cost_seconds = blocked_seconds

    def save_postponed(self) -> None:
        """No save before one more interval has passed."""
        self._saved_step = self.step
        self._saved_at = self.clock()

    def save_was_refused(self) -> None:
        """The newest save came to nothing: if it was one to keep for good, the next one is."""
        self._permanent_at = self._permanent_before

    def became_durable(self, durable: Durable) -> None:
        """A checkpoint is safely on disk."""
        self.durable = durable
        if durable.step > self._saved_step:
            self._saved_step = durable.step
            self._saved_at = self.clock()

    def permanent_is_due(self) -> bool:
        """Whether the next checkpoint is one to keep for good; asking counts as making it."""
        self._permanent_before = self._permanent_at
        if self.keep_every_seconds is None:
            return False
        trained = self.trained_seconds()
        if trained - self._permanent_at < self.keep_every_seconds:
            return False
        self._permanent_at = trained
        return True

    def trained_seconds(self) -> float:
        """Seconds of training that led to the present state, over all attempts."""
        here = 0.0 if self._begun_at is None else self.clock() - self._begun_at
        return self._trained_before + here

    def for_manifest(self) -> dict[str, Any]:
        """What `resumed` takes up."""
        return {
            "trainedSeconds": round(self.trained_seconds(), 3),
            "permanentAtSeconds": round(self._permanent_at, 3),
        }

    def require_training(self) -> None:
        """A job that resumes before its end and leaves without a step has lost its data, not ended.

        Raises:
            NothingTrained: that has happened.
        """
        resumed, total = self._resumed_at, self.total_steps
        if resumed is not None and total is not None and resumed < total and not self.steps_here:
            raise NothingTrained(
                f"the job resumed at step {resumed} of {total} and ended without training a step; "
                "the data loader is probably at the end of an epoch and was not started anew"
            )

    def _complete(self) -> None:
        if self._step_open:
            self.step += 1
            self.steps_here += 1
            self._step_open = self.torn = False
