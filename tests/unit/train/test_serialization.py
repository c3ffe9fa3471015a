"""Every kind of value comes back as it was, and what can't be stored is refused by its place."""

import json
from collections import Counter, OrderedDict, deque
from pathlib import Path
from typing import Any

import pytest

from clusterops.train.background import StateCopies
from clusterops.train.disk import PosixDisk
from clusterops.train.errors import CorruptCheckpoint, UnsupportedState
from clusterops.train.serialization import decode, encode
from clusterops.train.shards import read_rank, write_rank

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def round_trip(state: Any, folder: Path, *, shard_bytes: int = 1 << 30) -> Any:
    files = write_rank(PosixDisk(), folder, 0, encode(state), shard_bytes=shard_bytes)
    return read_rank(PosixDisk(), folder, 0, {record.name: record for record in files})


PLAIN = [
    None,
    True,
    0,
    -(10**40),
    1.5,
    -0.0,
    float("inf"),
    "text \x00 \ud800 ü",
    b"",
    b"\x00\xff" * 10_000,
    [1, [2, (3, ())]],
    {"a": {"b": None}, "$": "not a mark"},
    {1: "int", "1": "text", (1, 2): "tuple", None: "none", False: "bool"},
    OrderedDict([("z", 1), ("a", 2)]),
    Counter({30: 1, 80: 1}),
    deque([1, 2, 3], maxlen=3),
    {1, 2, 3},
    frozenset({"a", "b"}),
    3 + 4j,
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_come_back_with_their_types(value: Any, tmp_path: Path) -> None:
    back = round_trip({"value": value}, tmp_path)["value"]
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_nan_comes_back_as_nan(tmp_path: Path) -> None:
    back = round_trip([float("nan")], tmp_path)[0]
    assert back != back


TORCH_DTYPES = sorted(
    {
        str(one)
        for one in vars(torch).values()
        if isinstance(one, torch.dtype)
        and not str(one).startswith(("torch.q", "torch.bits", "torch.int1", "torch.uint1"))
    }
)


@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_tensors_of_every_dtype_come_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name.removeprefix("torch."))
    raw = torch.randint(0, 2, (96,), dtype=torch.uint8)
    try:
        tensor = raw.view(dtype)
    except RuntimeError:
        pytest.skip(f"{name} has no bytes of its own in this torch")
    back = round_trip({"t": tensor, "scalar": tensor[0], "none": tensor[:0]}, tmp_path)
    assert back["t"].dtype == dtype
    assert back["t"].shape == tensor.shape
    assert torch.equal(back["t"].view(torch.uint8), raw)
    assert back["scalar"].shape == ()
    assert back["none"].numel() == 0


def test_tensors_keep_values_through_strides_views_and_gradients(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    state = {
        "transposed": base.transpose(0, 2),
        "view": base[:, 1],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "parameter": torch.nn.Parameter(base.clone()),
        "conjugate": torch.tensor([1 + 2j, 3 - 1j]).conj(),
        "channels_last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }
    back = round_trip(state, tmp_path)
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor.detach()), name


def test_a_tied_tensor_is_stored_once_and_comes_back_as_one(tmp_path: Path) -> None:
    weights = torch.rand(1000)
    encoded = encode({"embedding": weights, "output": weights, "other": weights.clone()})
    assert [block.size for block in encoded.blocks] == [4000, 4000]
    back = round_trip({"embedding": weights, "output": weights, "part": weights[:10]}, tmp_path)
    assert back["embedding"] is back["output"]
    assert torch.equal(back["part"], weights[:10])


@pytest.mark.parametrize(
    "dtype", ["?", "<i2", ">i4", "<f2", "<f8", ">f8", "<c8", "<c16", "<M8[s]", "<U5", "S3", "<f16"]
)
def test_arrays_of_every_dtype_come_back_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    array = numpy.zeros((3, 4), dtype)
    array.reshape(-1).view(numpy.uint8)[::7] = 1
    back = round_trip({"a": array, "f": numpy.asfortranarray(array), "one": array[0, 0]}, tmp_path)
    assert back["a"].dtype == array.dtype
    assert back["a"].tobytes() == array.tobytes()
    assert back["f"].tobytes() == array.tobytes()
    assert type(back["one"]) is type(array[0, 0])


def test_many_shards_hold_what_one_would(tmp_path: Path) -> None:
    state = {f"t{i}": torch.full((100,), float(i)) for i in range(20)}
    back = round_trip(state, tmp_path, shard_bytes=1000)
    assert len(list(tmp_path.glob("*.safetensors"))) == 10
    assert all(torch.equal(back[name], state[name]) for name in state)


def test_shards_open_in_any_safetensors_reader(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = {"model": {"w": torch.rand(3, 5, dtype=torch.bfloat16), "b": torch.arange(7)}}
    round_trip(state, tmp_path)
    loaded = safetensors.load_file(tmp_path / "rank_00000_000.safetensors")
    assert torch.equal(loaded["model/w"], state["model"]["w"])
    assert torch.equal(loaded["model/b"], state["model"]["b"])


def test_names_that_collide_stay_apart(tmp_path: Path) -> None:
    state = {
        "a/b": torch.ones(1),
        "a": {"b": torch.zeros(1)},
        "__metadata__": torch.full((1,), 2.0),
    }
    back = round_trip(state, tmp_path)
    assert [back["a/b"].item(), back["a"]["b"].item(), back["__metadata__"].item()] == [1, 0, 2]


class _Foreign:
    pass


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (_Foreign(), "_Foreign, which can't be stored without pickle"),
        (lambda: None, "function"),
        (numpy.array([object()]), "array of object"),
        (numpy.zeros(2, [("a", "i4")]), "array of"),
        (torch.ones(2, 2).to_sparse(), "layout"),
        (torch.empty(2, device="meta"), "meta device"),
        (float, "type"),
    ],
    ids=["object", "function", "objects", "records", "sparse", "meta", "class"],
)
def test_what_needs_pickle_is_refused_by_its_place(value: Any, why: str) -> None:
    with pytest.raises(UnsupportedState, match=r"optimizer/state/0") as refusal:
        encode({"optimizer": {"state": [value]}})
    assert why in str(refusal.value)


def test_a_state_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnsupportedState, match="contains itself"):
        encode(loop)


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "unheard of"},
        {"$": "tensor"},
        {"$": "tensor", "ref": "absent"},
        {"$": "bytes", "value": "not base64!"},
        {"$": "tuple"},
    ],
)
def test_a_tree_that_no_encoder_made_is_corrupt(tree: Any) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode(tree, {})


def test_optimizer_scaler_and_scheduler_states_come_back_equal(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
    schedules = [
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=10),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
    ]
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "optimizer": optimizer.state_dict(),
        "schedules": [one.state_dict() for one in schedules],
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "generators": torch.get_rng_state(),
    }
    back = round_trip(state, tmp_path)
    optimizer.load_state_dict(back["optimizer"])
    for one, saved in zip(schedules, back["schedules"], strict=True):
        one.load_state_dict(saved)
    again = {
        "optimizer": optimizer.state_dict(),
        "schedules": [one.state_dict() for one in schedules],
    }
    assert json.dumps(encode(again).tree, sort_keys=True) == json.dumps(
        encode({name: state[name] for name in again}).tree, sort_keys=True
    )


def test_copies_do_not_follow_the_state_and_are_reused() -> None:
    weights = torch.zeros(100)
    array = numpy.zeros(100)
    numbers = [0]
    copies = StateCopies()
    first = copies.take(encode({"w": weights, "a": array, "n": numbers}))
    weights += 1
    array += 1
    numbers[0] = 1
    assert first.tree["n"] == [0]
    assert [float(block.source.sum()) for block in first.blocks] == [0, 0]
    second = copies.take(encode({"w": weights, "a": array, "n": numbers}))
    assert [float(block.source.sum()) for block in second.blocks] == [100, 100]
    reused = zip(first.blocks, second.blocks, strict=True)
    assert all(one.source is other.source for one, other in reused)
    changed = copies.take(encode({"w": weights[:50].double(), "a": array[:50]}))
    assert [tuple(block.source.shape) for block in changed.blocks] == [(50,), (50,)]
