"""Delivered batches for the trainer, made without queue or processes: rolled out, scored, in order."""

from rlhf import building
from rlhf.config.sections import RunConfig
from rlhf.generation import PlainEngine, drain
from rlhf.graders.protocol import score_of
from rlhf.identity import Envelope, sampling_seed
from rlhf.model.building import build
from rlhf.model.language import LanguageModel
from rlhf.responses import Response, pack
from rlhf.reward_queue_types import Batch, Graded
from rlhf.rollout import without_stop
from rlhf.sampling import Parameters
from rlhf.trainer import Trainer


def small_trainer(config: RunConfig) -> Trainer:
    """Its trainer, with audit and canaries as configured."""
    task = building.task(config)
    return Trainer(
        build(config.model, task.vocabulary.size, config.seed),
        config,
        task.vocabulary.stop_tokens,
        audit=building.audit(config, task),
        canaries=building.canaries(config),
    )


def batch_of(config: RunConfig, model: LanguageModel, number: int = 0) -> Batch:
    """A batch as the queue delivers it: sampled by the model, scored by the task, canaries known."""
    task, size, group = building.task(config), config.rollout.batch, config.rollout.group
    engine, canaries = PlainEngine(model), building.canaries(config)
    prompts = {seq: task.prompt(seq // group) for seq in range(number * size, (number + 1) * size)}
    for seq, prompt in prompts.items():
        parameters = Parameters(
            config.rollout.max_new_tokens,
            sampling_seed(config.seed, seq, 0),
            config.rollout.temperature,
            stop_tokens=task.vocabulary.stop_tokens,
        )
        engine.submit("p", seq, prompt.ids, parameters)
    samples = []
    for result in drain(engine):
        seq, prompt = result.sample_idx, prompts[result.sample_idx]
        text = task.vocabulary.decode(without_stop(result.tokens, task.vocabulary.stop_tokens))
        response = Response(
            list(prompt.ids),
            result.tokens,
            prompt.text,
            text,
            result.logprobs,
            result.finish_reason,
        )
        known = canaries is not None and canaries.is_canary(seq)
        score = score_of(canaries.reward(seq) if known else task.reward(prompt.text, text))
        envelope = Envelope("run", seq, 0, seq // group, 1, number, *response.digests())
        samples.append(Graded(envelope, score, pack(response), "test", 1.0, 1.5))
    return Batch(number, number, samples, "")
