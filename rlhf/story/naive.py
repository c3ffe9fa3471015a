"""The first run of the story: PPO as it is, fed by the naive loader.

    python -m rlhf.story.naive RUN_FOLDER a.b=value ...

Model, task and update are the product's own. Only the pairing is not: rewards meet samples by position.
The true reward of each sample is written beside the one that it was given, for the doctor.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf import building
from rlhf.config.resolve import dump, resolve
from rlhf.config.sections import RunConfig
from rlhf.generation import Engine, PlainEngine, Result, drain
from rlhf.identity import Envelope, OrderDigest, Score, sampling_seed
from rlhf.model.building import build
from rlhf.responses import Response, pack
from rlhf.reward_queue_types import Batch, Graded
from rlhf.rollout import without_stop
from rlhf.run import make_deterministic
from rlhf.run_folder import RunFolder
from rlhf.sample_rows import SampleRow
from rlhf.sampling import Parameters
from rlhf.story.naive_loader import NaiveLoader
from rlhf.tasks.reverse_digits import reversed_share
from rlhf.tasks.task import Task
from rlhf.trainer import Trainer, Updated

RUN_ID = "naive"


def train(config: RunConfig, folder: RunFolder) -> str:
    """Trains all steps; the order digest of what was sampled."""
    make_deterministic(config)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.config.write_text(dump(config, run_id=RUN_ID))
    task = building.task(config)
    vocabulary = task.vocabulary
    policy = build(config.model, vocabulary.size, config.seed)
    trainer = Trainer(policy, config, vocabulary.stop_tokens)
    engine = PlainEngine(build(config.model, vocabulary.size, config.seed))
    loader, order = NaiveLoader(reversed_share), OrderDigest()
    try:
        for step in range(config.steps):
            engine.set_weights(step, policy.state_dict())
            responses = rolled_out(engine, task, config, step)
            loader.submit([(one.prompt, one.response) for one in responses])
            # The fault: whatever has arrived, by position.
            rewards = loader.take(len(responses))
            batch = paired_by_position(responses, rewards, step)
            order.extend([_identity(one) for one in batch.samples])
            record(folder, step, trainer.update(batch), responses)
    finally:
        loader.close()
    return order.value


def rolled_out(engine: Engine, task: Task, config: RunConfig, step: int) -> list[Response]:
    """One batch of responses, in order."""
    size, vocabulary = config.rollout.batch, task.vocabulary
    prompts = {seq: task.prompt(seq) for seq in range(step * size, (step + 1) * size)}
    for seq, prompt in prompts.items():
        parameters = Parameters(
            max_new_tokens=config.rollout.max_new_tokens,
            seed=sampling_seed(config.seed, seq, 0),
            temperature=config.rollout.temperature,
            stop_tokens=vocabulary.stop_tokens,
        )
        engine.submit(str(seq), seq, prompt.ids, parameters)

    def response(result: Result) -> Response:
        prompt = prompts[result.sample_idx]
        text = vocabulary.decode(without_stop(result.tokens, vocabulary.stop_tokens))
        return Response(
            list(prompt.ids),
            result.tokens,
            prompt.text,
            text,
            result.logprobs,
            result.finish_reason,
        )

    return [response(one) for one in sorted(drain(engine), key=lambda one: one.sample_idx)]


def paired_by_position(responses: Sequence[Response], rewards: Sequence[float], step: int) -> Batch:
    """What the loop under suspicion did: the i-th reward for the i-th sample."""
    first = step * len(responses)
    samples = [
        Graded(
            Envelope(RUN_ID, first + place, 0, first + place, 1, step, *one.digests()),
            Score(reward),
            pack(one),
        )
        for place, (one, reward) in enumerate(zip(responses, rewards, strict=True))
    ]
    return Batch(step, step, samples, "")


def record(folder: RunFolder, step: int, updated: Updated, responses: Sequence[Response]) -> None:
    """Metrics and samples, each with the reward that it should have had."""
    true = [reversed_share(one.prompt, one.response) for one in responses]
    rows = [
        SampleRow(
            step=row.step,
            seq=row.seq,
            reward=row.reward,
            recomputed=value,
            prompt=row.prompt,
            response=row.response,
            advantage=row.advantage,
        )
        for row, value in zip(updated.rows, true, strict=True)
    ]
    folder.append_samples(rows)
    folder.append_metrics({"step": step, **updated.metrics, "story/reward": sum(true) / len(true)})


def _identity(graded: Graded) -> tuple[int, int, int, str, str]:
    envelope = graded.envelope
    return (
        envelope.seq,
        envelope.draw,
        envelope.policy_version,
        envelope.prompt_digest,
        envelope.response_digest,
    )


def main(arguments: list[str]) -> int:
    """Runs it."""
    folder, *words = arguments
    # Checks that would stop the run are off: there were none, and that is the story.
    config = resolve(None, [*words, "checks.audits=0", "checks.canary_every=0"]).config
    digest = train(config, RunFolder(Path(folder)))
    (Path(folder) / "order_digest").write_text(digest + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
