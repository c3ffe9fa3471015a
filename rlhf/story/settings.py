"""What is trained in the story: reverse-digits, small enough for three runs in three minutes."""

from pathlib import Path

STEPS = 64
BATCH = 224

COMMON = (
    f"steps={STEPS}",
    f"rollout.batch={BATCH}",
    "task.name=reverse-digits",
    "model.context=32",
    "warm_up.batch=32",
    "warm_up.lr=3e-3",
    "ppo.epochs=2",
    "ppo.minibatches=4",
    "ppo.value_coefficient=1.0",
    "ppo.missing_stop_penalty=0.5",
    "kl.beta=0.01",
    "optimizer.lr=1e-3",
    "optimizer.schedule=linear",
    "checks.audits=8",
    "checkpoints.every_steps=32",
)
WARM_UP = ("warm_up.steps=700",)
UNRELIABLE = (
    "grader.kind=custom",
    "grader.function=rlhf.story.unreliable:UnreliableGrader",
    "grader.workers=48",
    "checks.audit_function=rlhf.tasks.reverse_digits:reversed_share",
    "queue.retries=4",
    "queue.grading_seconds=20",
)


def from_start(start: Path) -> tuple[str, ...]:
    """Begin with weights that are warmed up already."""
    return (f"model.start={start}", "warm_up.steps=0")
