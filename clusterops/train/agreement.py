"""How the ranks of a job decide together: one rank's word, everybody's flags, anybody's failure.

All methods are collective: every rank calls them in the same order. Messages are JSON.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from clusterops.train.errors import (
    ConfigurationError,
    CorruptCheckpoint,
    DirectoryRefused,
    NothingToResume,
    RankFailed,
    ResumeMismatch,
    SaveFailed,
    StaleAttempt,
    StorageRefused,
    TrainError,
    UnsupportedFormat,
    UnsupportedState,
)

T = TypeVar("T")

# Failures that mean the same on every rank keep their type there; all others become RankFailed.
_SHARED_FAILURES: dict[str, type[TrainError]] = {
    kind.__name__: kind
    for kind in (
        CorruptCheckpoint,
        DirectoryRefused,
        NothingToResume,
        ResumeMismatch,
        SaveFailed,
        StaleAttempt,
        StorageRefused,
        UnsupportedFormat,
        UnsupportedState,
    )
}


class Ranks(Protocol):
    """The processes of one job."""

    rank: int
    world_size: int

    def highest(self, flags: Sequence[int]) -> list[int]:
        """Each flag's maximum over all ranks. Called at every step: must be cheap."""

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""


class Alone:
    """A job of one process."""

    rank = 0
    world_size = 1

    def highest(self, flags: Sequence[int]) -> list[int]:
        return list(flags)

    def gather(self, value: Any) -> list[Any]:
        return [value]


class TorchRanks:
    """Ranks over torch.distributed, with a gloo group of their own: never mixed with the job's
    collectives, and no GPU is involved.
    """

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self._torch = torch
        self._dist = dist
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo")

    def highest(self, flags: Sequence[int]) -> list[int]:
        tensor = self._torch.tensor(list(flags), dtype=self._torch.int64)
        try:
            self._dist.all_reduce(tensor, self._dist.ReduceOp.MAX, group=self._group)
        except RuntimeError as error:
            raise _gone(error) from error
        return [int(flag) for flag in tensor.tolist()]

    def gather(self, value: Any) -> list[Any]:
        """See `Ranks.gather`; as JSON in equally long messages.

        Raises:
            RankFailed: a rank is gone.
        """
        content = json.dumps(value).encode()
        room = self.highest([len(content)])[0]
        # Length first, then the text: every rank sends equally many bytes.
        mine = self._torch.zeros(8 + room, dtype=self._torch.uint8)
        sent = len(content).to_bytes(8, "big") + content
        mine[: len(sent)] = self._torch.frombuffer(bytearray(sent), dtype=self._torch.uint8)
        everybody = [self._torch.empty_like(mine) for _ in range(self.world_size)]
        try:
            self._dist.all_gather(everybody, mine, group=self._group)
        except RuntimeError as error:
            raise _gone(error) from error
        texts = [one.numpy().tobytes() for one in everybody]
        return [json.loads(text[8 : 8 + int.from_bytes(text[:8], "big")]) for text in texts]


def ranks_of(processes: int) -> Ranks:
    """torch.distributed's ranks where the job has started it, else this process alone.

    Raises:
        ConfigurationError: the environment speaks of more `processes` than this one, and they have no
            way to agree.
    """
    torch = sys.modules.get("torch")
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return TorchRanks() if torch.distributed.get_world_size() > 1 else Alone()
    if processes > 1:
        raise ConfigurationError(
            f"this job has {processes} processes, and torch.distributed is not initialized: call "
            "train.init_process_group() before train.session(...), so that they agree on what to "
            "save and where to resume"
        )
    return Alone()


def together(ranks: Ranks, action: Callable[[], Any]) -> list[Any]:
    """Runs an action on every rank; returns every rank's (JSON) result, or raises on every rank.

    Raises:
        RankFailed: another rank's action failed.
        Exception: this rank's own failure, or another's that means the same here.
    """
    failure: Exception | None = None
    answer: dict[str, Any]
    try:
        answer = {"value": action()}
    except Exception as error:
        failure = error
        answer = {"failed": type(error).__name__, "message": str(error)}
    answers = ranks.gather(answer)
    if failure is not None:
        raise failure
    for rank, other in enumerate(answers):
        if "failed" in other:
            raise _failure_of(rank, other)
    return [other["value"] for other in answers]


def leader_decides(ranks: Ranks, action: Callable[[], T]) -> T:
    """Rank 0 runs the action; every rank gets its (JSON) result, or its failure."""
    result: T = together(ranks, action if ranks.rank == 0 else lambda: None)[0]
    return result


def _failure_of(rank: int, answer: dict[str, Any]) -> TrainError:
    kind = _SHARED_FAILURES.get(answer["failed"])
    if kind is not None:
        return kind(answer["message"])
    return RankFailed(f"rank {rank} failed with {answer['failed']}: {answer['message']}")


def _gone(error: RuntimeError) -> RankFailed:
    return RankFailed(f"another rank is gone or does not answer: {error}")
