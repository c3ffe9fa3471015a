"""Uids are version 4 UUIDs, each new, from few requests for randomness."""

import os
import uuid

from clusterops.apiserver.uids import Uids


def test_each_uid_is_new_and_well_formed() -> None:
    fetched = []

    def source(count: int) -> bytes:
        fetched.append(count)
        return os.urandom(count)

    uids = Uids(source)
    made = [uids.new() for _ in range(1000)]
    assert len(set(made)) == 1000
    for text in made:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
    assert len(fetched) == 4
