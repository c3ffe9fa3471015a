"""The loop of a run, twice: in turn, and overlapped. Both say in which order things happen; the numbers
(which batch by which policy version) are fixed by the stream, whatever the timing.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from rlhf.reward_queue_types import Batch
from rlhf.trainer import Updated


class Learner(Protocol):
    """Trains the policy."""

    def update(self, batch: Batch) -> Updated:
        """Learns from a batch, whose rewards it checks against the tokens in the loss."""


class Stream(Protocol):
    """Batches in order, filled by another process."""

    def trained(self, batch: Batch) -> None:
        """The update with a batch is made and its policy published."""


Publish = Callable[[int], None]
"""Writes the weights after so many updates where rollout finds them."""

Record = Callable[[int, Batch, Updated], None]
"""Writes down what a step has come to, and completes it."""

Steps = Iterator[tuple[int, Batch]]
"""(step, batch) for the steps still to do. Asking for the next one waits for its rewards."""


def synchronous(
    steps: Steps, learner: Learner, stream: Stream, publish: Publish, record: Record
) -> None:
    """Lag 0: sample, grade and train in turn. The simplest thing that can be right.

    batch k: rolled out by version k | graded | trained | version k + 1
                                                          batch k + 1: rolled out ...
    """
    for step, batch in steps:  # 1. rolled out by version `step`, and graded; nothing is trained
        assert batch.policy_version == step
        updated = learner.update(batch)  # 2. trained; nothing is rolled out
        publish(step + 1)  # 3. the weights of the next batch ...
        stream.trained(batch)  # ... which begins now
        record(step, batch, updated)


def asynchronous(
    steps: Steps, learner: Learner, stream: Stream, publish: Publish, record: Record, lag: int
) -> None:
    """Lag L: while batch k is trained, batches k + 1 to k + L are rolled out and graded.

        batch k:          rolled out by version k - L | graded | trained | version k + 1
        batch k + 1:        rolled out by version k + 1 - L | graded |    trained | ...
        batch k + 1 + L:                                                 rolled out by version k + 1

    A batch waits for those before it and never for better weights: its version is max(0, k - L) also
    when training is quick, so that the same seed gives the same run.
    """
    for step, batch in steps:  # 1. complete and in its turn, sampled by a version `lag` updates old
        assert batch.policy_version == max(0, step - lag)
        updated = learner.update(batch)  # 2. trained, while the next ones are rolled out and graded
        publish(step + 1)  # 3. the weights that batch `step` + 1 + `lag` waits for ...
        stream.trained(batch)  # ... which may begin now
        record(step, batch, updated)
