"""Samples and answers between processes and over HTTP: JSON with a schema, limits, signatures.

Whoever grades hashes the token ids it was given and echoes those digests; so an answer computed on
the wrong tokens cannot pass for the right one, wherever they were mixed up.
"""

import hashlib
import hmac
from typing import Any

import msgspec

from rlhf.graders.protocol import Answer, BadAnswer, Sample
from rlhf.identity import Envelope, Score, digests
from rlhf.missing import Missing, Reason

VERSION = 1
MOST_BYTES = 8 << 20
"""Of a request or an answer: more is refused unread."""
SIGNATURE_HEADER = "x-clusterops-signature"
SHORTEST_KEY_BYTES = 16


class WireSample(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A sample as JSON."""

    run_id: str
    seq: int
    draw: int
    group_id: int
    attempt: int
    policy_version: int
    prompt_ids: list[int]
    response_ids: list[int]
    prompt: str = ""
    response: str = ""
    context: dict[str, Any] = {}


class WireAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """An answer as JSON: `reward`, or `missing` (a reason) with `detail`."""

    run_id: str
    seq: int
    draw: int
    group_id: int
    attempt: int
    policy_version: int
    prompt_digest: str
    response_digest: str
    reward: float | None = None
    parts: dict[str, float] = {}
    missing: Reason | None = None
    detail: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What a grader is asked. `nonce` makes equal requests differ, so no reply fits another."""

    version: int
    nonce: str
    samples: list[WireSample]


class Reply(msgspec.Struct, frozen=True, rename="camel"):
    """What it says."""

    answers: list[WireAnswer]


def encode_request(samples: list[Sample], nonce: str) -> bytes:
    """Samples as JSON."""
    return msgspec.json.encode(Request(VERSION, nonce, [_wire_sample(each) for each in samples]))


def decode_request(body: bytes) -> list[Sample]:
    """Samples from JSON, their digests made of the token ids as they arrived.

    Raises:
        BadAnswer: it is no request of a version that is known here.
    """
    try:
        request = msgspec.json.decode(body, type=Request)
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"no request for rewards: {error}") from None
    if request.version != VERSION:
        raise BadAnswer(f"version {request.version} of the protocol; here it is {VERSION}")
    return [_sample(each) for each in request.samples]


def encode_reply(answers: list[Answer]) -> bytes:
    """Answers as JSON."""
    return msgspec.json.encode(Reply([_wire_answer(each) for each in answers]))


def decode_reply(body: bytes) -> list[Answer]:
    """Answers from JSON.

    Raises:
        BadAnswer: it is no reply, or one of its answers is neither reward nor reason.
    """
    try:
        reply = msgspec.json.decode(body, type=Reply)
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"the reply does not have the form agreed on: {error}") from None
    return [_answer(each) for each in reply.answers]


def request_signature(key: bytes, body: bytes) -> str:
    """What proves that a request comes from who has the key."""
    return hmac.new(key, b"request\n" + body, hashlib.sha256).hexdigest()


def reply_signature(key: bytes, request_signature: str, body: bytes) -> str:
    """What proves that a reply comes from who has the key, and belongs to that request."""
    text = b"reply\n" + request_signature.encode("ascii") + b"\n" + body
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def checked_key(key: bytes) -> bytes:
    """The key, refused when it is too short to be a secret."""
    if len(key) < SHORTEST_KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes; at least {SHORTEST_KEY_BYTES} are needed")
    return key


def _wire_sample(sample: Sample) -> WireSample:
    one = sample.envelope
    return WireSample(
        one.run_id,
        one.seq,
        one.draw,
        one.group_id,
        one.attempt,
        one.policy_version,
        sample.prompt_ids,
        sample.response_ids,
        sample.prompt,
        sample.response,
        sample.context,
    )


def _sample(wire: WireSample) -> Sample:
    try:
        found = digests(wire.prompt_ids, wire.response_ids)
    except ValueError as error:
        raise BadAnswer(str(error)) from None
    envelope = Envelope(
        wire.run_id, wire.seq, wire.draw, wire.group_id, wire.attempt, wire.policy_version, *found
    )
    return Sample(
        envelope, wire.prompt_ids, wire.response_ids, wire.prompt, wire.response, wire.context
    )


def _wire_answer(answer: Answer) -> WireAnswer:
    one = answer.envelope
    identity = (
        one.run_id,
        one.seq,
        one.draw,
        one.group_id,
        one.attempt,
        one.policy_version,
        one.prompt_digest,
        one.response_digest,
    )
    outcome = answer.outcome
    if isinstance(outcome, Missing):
        return WireAnswer(*identity, missing=outcome.reason, detail=outcome.detail)
    return WireAnswer(*identity, reward=outcome.reward, parts=outcome.parts)


def _answer(wire: WireAnswer) -> Answer:
    envelope = Envelope(
        wire.run_id,
        wire.seq,
        wire.draw,
        wire.group_id,
        wire.attempt,
        wire.policy_version,
        wire.prompt_digest,
        wire.response_digest,
    )
    if wire.reward is not None and wire.missing is None:
        return Answer(envelope, Score(wire.reward, wire.parts))
    if wire.missing is not None and wire.reward is None:
        return Answer(envelope, Missing(wire.missing, wire.detail))
    raise BadAnswer(f"the answer for slot {wire.seq} has neither or both of reward and missing")
