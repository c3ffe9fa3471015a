"""What the ranks find out together at a step boundary, by one small all-reduce."""

from typing import NamedTuple

from clusterops.train.agreement import Ranks
from clusterops.train.errors import StaleAttempt
from clusterops.train.notice import NoticeBoard
from clusterops.train.persistence import PersistentState


class Agreed(NamedTuple):
    """What at least one rank knows: a newer attempt runs; a background save has failed, or is still
    being written; a save is asked for, and to leave after it; and rank 0's word that a save is due.
    """

    stale: bool
    failed: bool
    writing: bool
    asked: bool
    leave: bool
    due: bool


def agree(ranks: Ranks, board: NoticeBoard, state: PersistentState | None, *, due: bool) -> Agreed:
    """Collective: every rank gets the same answer, and all do the same about it."""
    notice = board.pending()
    flags = (
        bool(board.stale),
        state is not None and state.failed,
        state is not None and state.writing,
        notice is not None,
        notice is not None and notice.then_exit,
        due,
    )
    return Agreed(*(bool(flag) for flag in ranks.highest([int(flag) for flag in flags])))


def stop_if_stale(agreed: Agreed, board: NoticeBoard) -> None:
    """Ends the session where a newer attempt runs.

    Raises:
        StaleAttempt: it does; on every rank.
    """
    if agreed.stale:
        raise StaleAttempt(
            f"{board.stale or 'another rank learnt that a newer attempt runs'}; "
            "this attempt commits nothing more and must stop"
        )


def mark_served(ranks: Ranks, board: NoticeBoard) -> tuple[bool, str]:
    """Every rank marks every rank's requests, so that one which arrives late there is not served
    twice. Returns whether to leave, and why. Collective.
    """
    notice = board.pending()
    mine = None if notice is None else [notice.id, notice.reason, notice.then_exit]
    asked = [one for one in ranks.gather(mine) if one is not None]
    board.served(one[0] for one in asked)
    leaving = [one[1] for one in asked if one[2]]
    return bool(leaving), leaving[0] if leaving else ""
