"""What rollout hands in with a slot, and what comes back to the trainer with the reward.

The queue carries it as bytes (`pack`, `unpack`) and writes it to the journal, so that a finished
sample survives a restart.
"""

from typing import Any

import msgspec

from rlhf.identity import Digests, digests


class Response(msgspec.Struct, frozen=True, array_like=True):
    """A response with its prompt. No padding anywhere; `logprobs` are those of the policy that
    sampled it, one per response token.

    `context` is what the task knows of the prompt (JSON), e.g. the right answer for a grader.
    `found_tokens` were taken from keys of a sibling, `versions` are the policy versions behind the
    tokens where they are not all the slot's own.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    prompt: str = ""
    response: str = ""
    logprobs: list[float] = []
    finish_reason: str = ""
    context: dict[str, Any] = {}
    found_tokens: int = 0
    versions: list[int] = []

    def digests(self) -> Digests:
        """The digests over its token ids."""
        return digests(self.prompt_ids, self.response_ids)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Response)


def pack(response: Response) -> bytes:
    """A response as bytes."""
    return _encoder.encode(response)


def unpack(payload: bytes) -> Response:
    """The response in these bytes.

    Raises:
        msgspec.MsgspecError: they hold none.
    """
    return _decoder.decode(payload)
