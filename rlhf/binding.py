"""The check at the place of use: a reward is fetched by slot and token digest, never by index.

Called inside the update, per mini-batch, with the tokens that enter the loss, after every
permutation, truncation, padding and packing. What was shifted, swapped or cut on the way has
another digest, and the run stops before the first wrong gradient.
"""

from collections.abc import Mapping, Sequence

from rlhf.identity import Digests, SampleId, digests
from rlhf.reward_queue_types import Batch, Graded


class BindingError(Exception):
    """A row of the loss and a reward do not belong together: the update must not be made.

    `seq`, `row` (digests of the tokens in the loss), `reward` (digests the reward was computed on,
    None when no reward has that number), and the path each took.
    """

    def __init__(
        self, what: str, seq: int, row: Digests, reward: Digests | None, paths: tuple[str, str]
    ) -> None:
        row_path, reward_path = paths
        super().__init__(
            f"slot {seq}: {what}\n"
            f"  tokens in the loss: {row.prompt}/{row.response}, {row_path}\n"
            f"  reward computed on: "
            + (f"{reward.prompt}/{reward.response}, {reward_path}" if reward else reward_path)
        )
        self.seq = seq
        self.row = row
        self.reward = reward
        self.row_path = row_path
        self.reward_path = reward_path


class BoundRewards:
    """The rewards of one batch, to be had only for the tokens they were computed on.

    Every sample's reward is fetched as often as the epochs ask for it; `unused` names samples that
    no row asked for.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._by_seq: Mapping[int, Graded] = {each.envelope.seq: each for each in batch.samples}
        self._by_digest: Mapping[Digests, SampleId] = {
            each.envelope.digests: each.envelope.sample_id for each in batch.samples
        }
        self._fetched: set[int] = set()
        if len(self._by_seq) != len(batch.samples):
            raise ValueError(f"batch {batch.number} holds a slot twice")

    def fetch(
        self,
        seq: int,
        prompt_ids: Sequence[int],
        response_ids: Sequence[int],
        path: Sequence[str] = (),
    ) -> Graded:
        """The graded sample of one row, whose `score` may enter the loss.

        `path` says what was done to the row on its way, e.g. ("sorted by length", "row 3").

        Raises:
            BindingError: names the slot, both digests and the path each took.
            InvalidTokens: the row's tokens are none.
        """
        row = digests(prompt_ids, response_ids)
        graded = self._by_seq.get(seq)
        row_path = " -> ".join(path) or "path unknown"
        if graded is None:
            told = f"batch {self.batch.number} has no reward for it"
            raise BindingError(told, seq, row, None, (row_path, "nothing"))
        if graded.envelope.digests != row:
            raise BindingError(
                self._mismatch(row), seq, row, graded.envelope.digests, (row_path, path_of(graded))
            )
        self._fetched.add(seq)
        return graded

    def unused(self) -> list[int]:
        """Slots of the batch that no row has asked for: samples missing from the loss."""
        return [seq for seq in self._by_seq if seq not in self._fetched]

    def _mismatch(self, row: Digests) -> str:
        other = self._by_digest.get(row)
        if other is not None:
            return f"the tokens in the loss are those of {other}, not of the rewarded sample"
        same_prompt = [
            each.envelope.seq
            for each in self.batch.samples
            if each.envelope.prompt_digest == row.prompt
        ]
        if same_prompt:
            return "the response in the loss is not the one that was rewarded (cut or padded?)"
        return "the tokens in the loss are of no sample of this batch (cut, padded or shifted?)"


def path_of(graded: Graded) -> str:
    """Which way a reward came, in words."""
    envelope = graded.envelope
    seconds = graded.answered_at - graded.claimed_at
    return (
        f"draw {envelope.draw} of group {envelope.group_id} by policy version "
        f"{envelope.policy_version} -> attempt {envelope.attempt} -> graded by "
        f"{graded.worker or 'nobody named'} in {seconds:.3f} s -> batch"
    )
