"""How an engine is built."""

from dataclasses import dataclass, field

from rlhf.engine_updates import OnUpdate
from rlhf.kv.plan import Limits
from rlhf.kv.waiting import Order


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine is built.

    `blocks` of the cache, or as many as `cache_bytes` hold, but no more than all seats can use.
    `max_version_lag`: a rollout that would go on more than so many policy versions after its first
    token ends as "stale" instead; None for no limit. `max_waiting` requests may wait.
    """

    blocks: int | None = None
    block_size: int = 16
    cache_bytes: int = 256 << 20
    limits: Limits = field(default_factory=Limits)
    order: Order = field(default_factory=Order)
    on_update: OnUpdate = OnUpdate.FINISH
    max_version_lag: int | None = None
    max_waiting: int = 100_000

    def __post_init__(self) -> None:
        # Configuration writes a word; a word that is none of the three is an error here.
        object.__setattr__(self, "on_update", OnUpdate(self.on_update))
