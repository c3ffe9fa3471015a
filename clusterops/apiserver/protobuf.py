"""The few protobuf bodies that kubectl sends even when the server speaks JSON only."""

from typing import Any

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"


def decode(body: bytes) -> dict[str, Any]:
    """The JSON form of an enveloped message. Raises Refused 415 for kinds that are not read here, 400 when malformed."""
    raise NotImplementedError
