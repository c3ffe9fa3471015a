"""The check at the place of use: a reward is fetched by slot and token digest, never by index."""

from collections.abc import Sequence

from rlhf.identity import Score
from rlhf.reward_queue_types import Batch


class BindingError(Exception):
    """A row of the loss and a reward do not belong together."""


class BoundRewards:
    """The rewards of one batch, to be had only for the tokens they were computed on."""

    def __init__(self, batch: Batch) -> None:
        raise NotImplementedError

    def fetch(
        self,
        seq: int,
        prompt_ids: Sequence[int],
        response_ids: Sequence[int],
        path: Sequence[str] = (),
    ) -> Score:
        """The reward of one row; `path` says what was done to the row on its way into the loss.

        Raises:
            BindingError: names seq, both digests and the path each took.
        """
        raise NotImplementedError
