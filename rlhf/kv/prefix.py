"""What a block of keys and values is known by: everything that went into it, in one digest.

Keys and values of a token depend on all tokens before it, on the weights, and on whatever else
steers the model. So the digest of a block covers its own tokens and, by a chain, all of that. The
policy version is in the root of the chain: after new weights nothing old can be found, and no flush
has to arrive in time.
"""

import json
from array import array
from collections.abc import Iterable
from hashlib import blake2b

DIGEST_BYTES = 16


def root(version: int, extras: Iterable[tuple[str, str | int]] = ()) -> bytes:
    """The start of a chain: the policy version and further (kind, value) pairs, e.g. a tenant.

    Pairs carry their kind, so that version 3 and tenant "3" are not the same.
    """
    text = json.dumps([["policy", version], *sorted(map(list, extras))])
    return blake2b(text.encode(), digest_size=DIGEST_BYTES, person=b"kv/root").digest()


def extended(parent: bytes, tokens: Iterable[int]) -> bytes:
    """The digest of a block of `tokens` that follows the block of digest `parent`."""
    return blake2b(
        parent + array("I", tokens).tobytes(), digest_size=DIGEST_BYTES, person=b"kv/block"
    ).digest()


def chain(start: bytes, tokens: list[int], block_size: int, known: list[bytes]) -> list[bytes]:
    """Digests of all full blocks of `tokens`; goes on after the `known` ones, in place."""
    parent = known[-1] if known else start
    for first in range(len(known) * block_size, len(tokens) - block_size + 1, block_size):
        parent = extended(parent, tokens[first : first + block_size])
        known.append(parent)
    return known
