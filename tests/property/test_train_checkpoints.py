"""A checkpoint directory under everything at once: saves, kills, power cuts, damage, other writers.

The machine keeps a model of what was acknowledged and what was damaged, and after every resume compares
what came back with it.
"""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.train_disk import CrashingDisk, PowerCut

from clusterops.train.agreement import Alone
from clusterops.train.checkpoint import CheckpointDirectory, open_directory
from clusterops.train.errors import NothingToResume, StaleAttempt
from clusterops.train.manifest import CHECKPOINT_NAME, MANIFEST_NAME, Identity
from clusterops.train.restoring import restore
from clusterops.train.serialization import encode

ROOT = Path("/c")
JOB = Identity("research", "llm", "uid", 1)
FILES = (MANIFEST_NAME, "rank_00000.json", "rank_00000_000.safetensors")

Order = tuple[int, int]


class CheckpointMachine(RuleBasedStateMachine):
    """One directory, a current writer, and at times a stale one."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = CrashingDisk()
        self.writer: CheckpointDirectory
        self.stale: CheckpointDirectory | None = None
        self.step = 0
        self.contents: dict[Order, dict[str, Any]] = {}  # everything that was ever begun
        self.acknowledged: set[Order] = set()
        self.damaged: set[Order] = set()

    @initialize()
    def begin(self) -> None:
        self.disk.make_directory(ROOT)
        self.disk.sync_directory(Path("/"))
        self.writer = self._opened()

    # What happens to a job.

    @rule(steps=st.integers(1, 3))
    def save(self, steps: int) -> None:
        self.step += steps
        self._save(self.writer)

    @rule(steps=st.integers(1, 3), after=st.integers(1, 25), seed=st.integers(0, 10**6))
    def lose_power_while_saving(self, steps: int, after: int, seed: int) -> None:
        self.step += steps
        self.disk.cut_after = self.disk.calls + after
        with contextlib.suppress(PowerCut):
            self._save(self.writer)
        self._next_process(self.disk.after_power_cut(seed))

    @rule(steps=st.integers(1, 3), after=st.integers(1, 25))
    def be_killed_while_saving(self, steps: int, after: int) -> None:
        self.step += steps
        self.disk.cut_after = self.disk.calls + after
        with contextlib.suppress(PowerCut):
            self._save(self.writer)
        self._next_process(self.disk.after_kill())

    @rule()
    def restart(self) -> None:
        self._next_process(self.disk.after_kill())

    @rule()
    def be_taken_over(self) -> None:
        """The old process still runs when the new one claims."""
        self.stale = self.writer
        self._resume()

    @precondition(lambda self: self.stale is not None)
    @rule()
    def stale_writer_saves(self) -> None:
        assert self.stale is not None
        before = self._there()
        with pytest.raises(StaleAttempt):
            self._save(self.stale)
        assert self._there() == before, "a stale writer changed the checkpoints"

    @rule(
        which=st.integers(0, 1),
        file=st.sampled_from(FILES),
        position=st.floats(0, 1, exclude_max=True),
        cut=st.booleans(),
    )
    def damage(self, which: int, file: str, position: float, cut: bool) -> None:
        """Of the newest or the one before, a file is torn or a bit flipped."""
        there = sorted(self._there() - self.damaged, reverse=True)
        if which >= len(there):
            return
        order = there[which]
        content = self.disk.file(ROOT / f"step_{order[1]:08d}" / file).content
        place = int(len(content) * position)
        if cut:
            del content[place:]
        else:
            content[place] ^= 1
        self.disk.file(ROOT / f"step_{order[1]:08d}" / file).synced = bytes(content)
        self.damaged.add(order)

    # What must hold.

    @invariant()
    def only_checkpoints_that_were_begun_bear_the_name(self) -> None:
        if hasattr(self, "writer"):
            assert self._there() <= set(self.contents)

    def _resume(self) -> None:
        intact = self._there() - self.damaged
        had_any = bool(self._there()) or self._quarantined()
        self.writer = self._opened()
        try:
            restored = restore(self.writer, Alone())
        except NothingToResume:
            assert not intact
            assert had_any
            # What a person does then.
            self.disk = CrashingDisk()
            self.acknowledged.clear()
            self.damaged.clear()
            self.step = 0
            self.stale = None
            self.begin()
            return
        if restored is None:
            assert not had_any
            assert not self.acknowledged
            self.step = 0
            return
        order = restored.manifest.order
        assert order == max(intact), "not the newest intact one"
        assert restored.shared == self.contents[order], "a mix"
        self.step = order[1]
        self.damaged &= self._there()
        self.acknowledged = {one for one in self.acknowledged if one in self._there()}

    def _next_process(self, disk: CrashingDisk) -> None:
        self.disk = disk
        self.stale = None
        there = self._there()
        newest_acknowledged = max(self.acknowledged, default=None)
        if newest_acknowledged is not None:
            assert newest_acknowledged in there or max(there) > newest_acknowledged, (
                "an acknowledged checkpoint is gone"
            )
        self._resume()

    def _save(self, directory: CheckpointDirectory) -> None:
        step = self.step if directory is self.writer else self.step + 7
        order = (directory.epoch, step)
        content = {"order": list(order), "weights": bytes([step % 251]) * 4500, "step": step}
        if directory is self.writer:
            self.contents[order] = content
            self.damaged.discard(order)
        directory.stage(step)
        files = directory.write(step, 0, encode(content))
        directory.commit(step, files, world_size=1, resume={})
        self.acknowledged.add(order)

    def _opened(self) -> CheckpointDirectory:
        return open_directory(ROOT, JOB, disk=self.disk)

    def _there(self) -> set[Order]:
        """Orders of the directories that bear a checkpoint's name, by what was written into them."""
        found = set()
        for entry in self.disk.entries(ROOT):
            match = CHECKPOINT_NAME.fullmatch(entry.name)
            if match:
                step = int(match.group(1))
                epochs = [epoch for epoch, other in self.contents if other == step]
                found.add((self._epoch_of(entry.name, epochs), step))
        return found

    def _epoch_of(self, name: str, epochs: list[int]) -> int:
        """The same step may have been written in several epochs: the renamed folder keeps the name of
        none, so it is found by its content, or, where that is damaged, among the damaged.
        """
        if len(epochs) == 1:
            return epochs[0]
        step = int(name[5:])
        content = bytes(self.disk.file(ROOT / name / "rank_00000.json").content)
        for epoch in epochs:
            if f'"order":[{epoch},{step}]'.encode() in content:
                return epoch
        return max(
            [epoch for epoch in epochs if (epoch, step) in self.damaged], default=max(epochs)
        )

    def _quarantined(self) -> bool:
        return any(entry.name.startswith(".quarantined") for entry in self.disk.entries(ROOT))


TestCheckpointMachine = CheckpointMachine.TestCase
TestCheckpointMachine.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
