"""Samples for graders under test."""

from rlhf.graders.protocol import Sample
from rlhf.identity import Envelope, digests


def sample(seq: int = 0, prompt: str = "p", response: str = "r", **context) -> Sample:
    ids = [seq, 1], [seq, 2, 3]
    envelope = Envelope("run", seq, 0, 0, 1, 0, *digests(*ids))
    return Sample(envelope, *ids, prompt, response, context)
