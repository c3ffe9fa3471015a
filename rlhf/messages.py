"""What the processes of a run say to each other. Trainer asks pipeline, pipeline asks rollout."""

import msgspec

from rlhf.reward_queue_types import Batch, Checkpoint


class Take(msgspec.Struct, tag="take"):
    """Trainer: the next batch, please. Answered by `Delivery`, `End` or `Failure`."""

    timeout_seconds: float


class Trained(msgspec.Struct, tag="trained"):
    """Trainer: the update with a batch is made, and its policy published. Answered by `Saved`."""

    batch: int


class Compact(msgspec.Struct, tag="compact"):
    """Trainer: no checkpoint of fewer updates is kept any more. Not answered."""

    oldest_trained: int


class Stop(msgspec.Struct, tag="stop"):
    """Trainer: the run is over, or this process is to end. The socket closes."""


class Delivery(msgspec.Struct, tag="delivery"):
    """Pipeline: a batch, and how the queue was when it left.

    `needed_from` is the oldest policy version that rollout may still ask for.
    """

    batch: Batch
    depth: int
    needed_from: int
    counts: dict[str, int] = {}
    rollout_seconds: float = 0.0
    """Time that rollout spent on generating since the last delivery."""
    generated_tokens: int = 0
    work: dict[str, float] = {}
    """What the engine did for it, summed: see `Generated.work`."""


class End(msgspec.Struct, tag="end"):
    """Pipeline: all batches were delivered."""

    total: int


class Saved(msgspec.Struct, tag="saved"):
    """Pipeline: where the journal is, durably; to be kept beside the weights."""

    checkpoint: Checkpoint


class Failure(msgspec.Struct, tag="failure"):
    """Pipeline or rollout: it cannot go on, and why."""

    why: str


FromTrainer = Take | Trained | Compact | Stop
FromPipeline = Delivery | End | Saved | Failure


class Request(msgspec.Struct, array_like=True):
    """One response to be generated. `seq` says whose it is, `seed` what is drawn. Those of one `group`
    have the same prompt, which is read once.
    """

    seq: int
    prompt_ids: list[int]
    seed: int
    group: int = 0


class Generate(msgspec.Struct, tag="generate"):
    """Pipeline: these responses, by this policy version. Answered by `Generated` or `Failure`."""

    version: int
    requests: list[Request]


class Generation(msgspec.Struct, array_like=True):
    """One response. `logprobs` are of the policy that drew it, one per token.

    `found_tokens` were not computed for it but taken from a sibling. `versions` says for each token
    which policy version drew it; empty when all are of the version asked for.
    """

    seq: int
    tokens: list[int]
    logprobs: list[float]
    finish_reason: str
    found_tokens: int = 0
    versions: list[int] = []


class Generated(msgspec.Struct, tag="generated"):
    """Rollout: all of them, in any order."""

    version: int
    responses: list[Generation]
    seconds: float
    work: dict[str, float] = {}
    """What it took, of an engine that counts: iterations and, summed over them, tokens computed and
    recomputed, sequences running, places of the cache held and in use.
    """


FromRollout = Generated | Failure
