"""The warm-up that all three runs of the story begin with.

python -m rlhf.story.warming FILE a.b=value ...
"""

import sys
from pathlib import Path

from rlhf import building
from rlhf.config.resolve import resolve
from rlhf.model.building import build
from rlhf.run import make_deterministic
from rlhf.warm_up import WarmUp
from rlhf.weights import Snapshots


def main(arguments: list[str]) -> int:
    """Imitates, and writes the weights."""
    target, *words = arguments
    config = resolve(None, words).config
    make_deterministic(config)
    task = building.task(config)
    policy = build(config.model, task.vocabulary.size, config.seed)
    loss = WarmUp(policy, task, config).run()
    path = Path(target)
    Snapshots(path.parent).publish(0, policy.state_dict()).replace(path)
    sys.stdout.write(f"loss {loss:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
