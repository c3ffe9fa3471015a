"""Imported by users' training code: sessions, verified checkpoints, notice of preemption.

Imports nothing heavy: names are resolved at first use, and torch only where a state needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clusterops.train.contents import Resumed
    from clusterops.train.cursor import Batch, DataCursor, extend_digest
    from clusterops.train.distributed import init_process_group
    from clusterops.train.errors import (
        ConfigurationError,
        CorruptCheckpoint,
        DirectoryRefused,
        Leave,
        NothingToResume,
        NothingTrained,
        PortTaken,
        RankFailed,
        ResumeMismatch,
        SaveFailed,
        StaleAttempt,
        TrainError,
        UnsupportedFormat,
        UnsupportedState,
    )
    from clusterops.train.opening import session
    from clusterops.train.sessions import Session

_HOMES = {
    "Batch": "cursor",
    "DataCursor": "cursor",
    "extend_digest": "cursor",
    "init_process_group": "distributed",
    "ConfigurationError": "errors",
    "CorruptCheckpoint": "errors",
    "DirectoryRefused": "errors",
    "Leave": "errors",
    "NothingToResume": "errors",
    "NothingTrained": "errors",
    "PortTaken": "errors",
    "RankFailed": "errors",
    "ResumeMismatch": "errors",
    "SaveFailed": "errors",
    "StaleAttempt": "errors",
    "TrainError": "errors",
    "UnsupportedFormat": "errors",
    "UnsupportedState": "errors",
    "Resumed": "contents",
    "Session": "sessions",
    "session": "opening",
}

__all__ = [
    "Batch",
    "ConfigurationError",
    "CorruptCheckpoint",
    "DataCursor",
    "DirectoryRefused",
    "Leave",
    "NothingToResume",
    "NothingTrained",
    "PortTaken",
    "RankFailed",
    "ResumeMismatch",
    "Resumed",
    "SaveFailed",
    "Session",
    "StaleAttempt",
    "TrainError",
    "UnsupportedFormat",
    "UnsupportedState",
    "extend_digest",
    "init_process_group",
    "session",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
