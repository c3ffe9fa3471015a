"""Whole runs under delay, reorder, duplication, loss, crashes and restarts, by seed.

CLUSTEROPS_MESSAGES sets how many messages the long test sends (1000000 for the full claim).
"""

import os
import shutil
from pathlib import Path

import pytest
from support.rlhf_faults import NONE, STORM, World, digest_of_trained, exactly_once, run
from support.rlhf_stream import shape

from rlhf import journal
from rlhf.doctor import order
from rlhf.journal import path_in
from rlhf.journal_replay import restore
from rlhf.missing import MissingPolicy, Rule
from rlhf.reward_queue_types import Batch, RunFailure

STREAM = shape(batch_size=16, group_size=4, lag=2)
IMPATIENT = MissingPolicy(
    timed_out=Rule(1), grader_error=Rule(1), refused=Rule(0), invalid_answer=Rule(1)
)
MESSAGES = int(os.environ.get("CLUSTEROPS_MESSAGES", "8000"))
MESSAGES_PER_BATCH = 38
"""Of 16 samples, in a storm."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> World:
    return run(tmp_path_factory.mktemp("undisturbed"), STREAM, 24)


@pytest.mark.parametrize("seed", range(6))
def test_while_retries_suffice_the_stream_is_the_undisturbed_one(
    tmp_path, seed, undisturbed
) -> None:
    faults = STORM._replace(restarts_every=250)
    world = run(tmp_path, STREAM, 24, faults=faults, seed=seed)
    assert world.restarts >= 2
    assert world.mispaired == 0
    assert exactly_once(world)
    assert world.queue.order_digest == undisturbed.queue.order_digest
    assert digest_of_trained(world) == undisturbed.queue.order_digest
    assert world.weights == undisturbed.weights


@pytest.mark.parametrize("seed", range(4))
def test_with_redraws_the_stream_is_the_one_that_the_journal_replays(tmp_path, seed) -> None:
    faults = STORM._replace(refused=0.02, crashed=0.05, restarts_every=300)
    world = run(
        tmp_path, shape(batch_size=16, group_size=4, lag=2, max_draws=20), 20,
        faults=faults, seed=seed, missing=IMPATIENT, compact=False,
    )  # fmt: skip
    assert world.failure is None
    assert any(draw for _, draw, _ in world.weights)
    assert world.mispaired == 0
    assert exactly_once(world)
    assert digest_of_trained(world) == world.queue.order_digest
    proof = order.prove(journal.read(path_in(tmp_path)))
    assert (proof.faults, proof.order_digest) == ([], world.queue.order_digest)
    assert replayed(tmp_path, world) == world.queue.order_digest


def replayed(folder: Path, world: World) -> str:
    """The digest when all batches are delivered again from the journal alone."""
    queue, writer = restore(folder, world.shape)
    writer.close()
    queue.end(0.0, world.batches * world.shape.batch_size)
    for number in range(world.batches):
        batch = queue.take(0.0)
        assert isinstance(batch, Batch)
        queue.mark_trained(number, 0.0)
    return queue.order_digest


def test_the_doctor_finds_every_disturbed_run_in_order(tmp_path) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        world = run(folder, STREAM, 12, faults=STORM._replace(restarts_every=200), seed=seed)
        proof = order.prove(journal.read(path_in(folder)))
        assert (proof.faults, proof.delivered) == ([], 12)
        assert proof.order_digest == world.queue.order_digest
        assert proof.lives == world.restarts + 1


def test_the_bound_holds_and_a_resume_adds_only_what_was_finished_before(tmp_path) -> None:
    world = run(tmp_path / "a", STREAM, 24, faults=STORM._replace(restarts_every=0), seed=1)
    assert world.largest_depth == STREAM.capacity
    again = run(tmp_path / "b", STREAM, 24, faults=STORM._replace(restarts_every=250), seed=1)
    # Up to a checkpoint's interval (3 batches) was finished beyond it and is kept.
    assert again.largest_depth <= STREAM.capacity + 4 * STREAM.batch_size


def test_a_grader_that_refuses_everything_ends_the_run_with_the_slot_named(tmp_path) -> None:
    world = run(tmp_path, STREAM, 4, faults=NONE._replace(refused=1.0), missing=IMPATIENT)
    assert isinstance(world.failure, RunFailure)
    assert "in the last of 3 draws" in world.failure.why


def test_without_faults_the_same_seed_and_another_have_the_same_stream(
    tmp_path, undisturbed
) -> None:
    for seed in (1, 2):
        world = run(tmp_path / str(seed), STREAM, 24, faults=NONE, seed=seed)
        assert world.queue.order_digest == undisturbed.queue.order_digest


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_long_storm_loses_repeats_and_mispairs_nothing(tmp_path) -> None:
    batches = MESSAGES // MESSAGES_PER_BATCH
    reference = run(tmp_path / "reference", STREAM, batches)
    world = run(tmp_path / "storm", STREAM, batches, faults=STORM, seed=99)
    assert world.messages >= 0.9 * MESSAGES
    assert world.restarts >= MESSAGES // 4000
    assert (world.mispaired, exactly_once(world)) == (0, True)
    assert world.queue.order_digest == reference.queue.order_digest
    assert digest_of_trained(world) == reference.queue.order_digest
    shutil.rmtree(tmp_path)
