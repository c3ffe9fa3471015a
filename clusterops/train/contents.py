"""What a session saves: the objects given to `resume`, plain values, and random number generators.

Objects and values are the same on all ranks and saved by rank 0. What differs by rank, generators
included, is saved by each rank.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterops.train import randomness
from clusterops.train.errors import ResumeMismatch
from clusterops.train.restoring import Restored
from clusterops.train.serialization import Encoded, encode

log = logging.getLogger("clusterops.train")


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where training goes on: after `step` steps. `values` are the plain values, restored or as
    given; `fresh` says that there was no checkpoint.
    """

    step: int
    fresh: bool
    values: Mapping[str, Any] = field(default_factory=dict)


class Contents:
    """The job's objects by name. `values` holds the current plain values and may be changed."""

    def __init__(self, objects: Mapping[str, Any], per_rank: Mapping[str, Any]) -> None:
        self._objects = {name: _plain_module(one) for name, one in objects.items() if _keeps(one)}
        self._per_rank = {name: _plain_module(one) for name, one in per_rank.items()}
        self.values = {name: one for name, one in objects.items() if not _keeps(one)}

    @property
    def order_digest(self) -> str:
        """That of the data cursor among the objects, or empty."""
        digests = (getattr(one, "order_digest", None) for one in self._objects.values())
        return next((digest for digest in digests if isinstance(digest, str)), "")

    def names(self) -> dict[str, list[str]]:
        """What is saved, for the manifest."""
        return {
            "objects": sorted(self._objects),
            "values": sorted(self.values),
            "perRank": sorted(self._per_rank),
        }

    def encoded(self, rank: int, generators: Mapping[str, Any]) -> Encoded:
        """The part of one rank at this moment; see `serialization.encode`."""
        state: dict[str, Any] = {
            "perRank": {name: one.state_dict() for name, one in self._per_rank.items()},
            "generators": dict(generators),
        }
        if rank == 0:
            state["objects"] = {name: one.state_dict() for name, one in self._objects.items()}
            state["values"] = self.values
        return encode(state)

    def load(self, restored: Restored, world_size: int, *, strict: bool) -> None:
        """Hands each object its state.

        Raises:
            ResumeMismatch: the checkpoint has not what is asked for, or an object refuses it.
        """
        shared, own = restored.shared, restored.own or {}
        saved_by = restored.manifest.world_size
        if self._per_rank and saved_by != world_size:
            raise ResumeMismatch(
                f"the checkpoint holds state by rank ({', '.join(self._per_rank)}) of {saved_by} "
                f"ranks, and this job has {world_size}; start it with as many, or convert it"
            )
        if strict:
            _compare("objects", self._objects, shared["objects"])
            _compare("values", self.values, shared["values"])
            _compare("per_rank", self._per_rank, own.get("perRank", {}))
        _load_each(self._objects, shared["objects"])
        _load_each(self._per_rank, own.get("perRank", {}))
        for name in self.values:
            if name in shared["values"]:
                self.values[name] = shared["values"][name]


def generators_of(restored: Restored) -> Mapping[str, Any] | None:
    """This rank's generators, or None where it has none and keeps those it was started with."""
    return None if restored.own is None else restored.own["generators"]


def current_generators() -> dict[str, Any]:
    """This process's generators now."""
    return randomness.capture()


def _keeps(one: Any) -> bool:
    return hasattr(one, "state_dict") and hasattr(one, "load_state_dict")


def _plain_module(one: Any) -> Any:
    """The module inside DistributedDataParallel: the wrapper's names would bind the checkpoint to a
    number of ranks.
    """
    return one.module if type(one).__name__ == "DistributedDataParallel" else one


def _compare(what: str, given: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    missing = sorted(set(given) - set(saved))
    surplus = sorted(set(saved) - set(given))
    if missing or surplus:
        raise ResumeMismatch(
            f"resume() was given {what} {sorted(given)}, and the checkpoint holds {sorted(saved)}; "
            "a part of a state is not restored silently: pass the same names, or strict=False to "
            "start what is missing afresh and to ignore the rest"
        )


def _load_each(objects: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    for name, one in objects.items():
        if name not in states:
            log.warning("resume: %s is not in the checkpoint and starts afresh", name)
            continue
        try:
            one.load_state_dict(states[name])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ResumeMismatch(f"{name} does not accept its saved state: {error}") from error
