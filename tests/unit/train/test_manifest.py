"""What a manifest accepts: itself, whole, and nothing that leads elsewhere."""

import json
from dataclasses import replace
from typing import Any

import pytest

from clusterops.train import manifest as manifests
from clusterops.train.errors import CorruptCheckpoint, UnsupportedFormat
from clusterops.train.manifest import FileRecord, Identity, Manifest

WHOLE = Manifest(
    step=3050,
    epoch=7,
    identity=Identity("research", "llm", "uid", 2),
    world_size=2,
    files=(FileRecord("rank_00000.json", 10, "0" * 64),),
    resume={"metrics": {"loss": 2.5}},
    order_digest="d",
)


def rewritten(**changes: Any) -> bytes:
    """The manifest with fields changed by somebody who gets the checksum right."""
    body = {**json.loads(WHOLE.to_bytes()), **changes}
    del body["sha256"]
    body["sha256"] = manifests._digest(body)
    return manifests._written(body)


def test_it_comes_back_equal_and_holds_the_contracts_fields() -> None:
    assert Manifest.from_bytes(WHOLE.to_bytes()) == WHOLE
    body = json.loads(WHOLE.to_bytes())
    assert (body["step"], body["epoch"], body["attempt"], body["worldSize"]) == (3050, 7, 2, 2)
    assert body["files"] == [{"name": "rank_00000.json", "size": 10, "sha256": "0" * 64}]


def test_no_single_bit_may_change() -> None:
    content = WHOLE.to_bytes()
    for position in range(len(content)):
        torn = bytearray(content)
        torn[position] ^= 1
        with pytest.raises(CorruptCheckpoint):
            Manifest.from_bytes(bytes(torn))
        with pytest.raises(CorruptCheckpoint):
            Manifest.from_bytes(content[:position])


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "rank_00000.json/../x", "", "manifest.json", "x"]
)
def test_a_file_that_is_no_shard_is_refused(name: str) -> None:
    files = [{"name": name, "size": 1, "sha256": "0" * 64}]
    with pytest.raises(CorruptCheckpoint, match="impossible file"):
        Manifest.from_bytes(rewritten(files=files))


@pytest.mark.parametrize(
    "change",
    [{"step": -1}, {"epoch": "1"}, {"files": None}, {"jobUid": 3}, {"worldSize": True}],
)
def test_fields_of_a_wrong_type_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptCheckpoint):
        Manifest.from_bytes(rewritten(**change))


def test_a_newer_format_is_not_called_damage() -> None:
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        Manifest.from_bytes(rewritten(formatVersion=2))


def test_order_is_by_epoch_then_step() -> None:
    assert replace(WHOLE, epoch=8, step=1).order > WHOLE.order
    assert replace(WHOLE, step=3051).order > WHOLE.order
