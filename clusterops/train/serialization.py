"""State as plain values and named blocks of bytes, without pickle.

`encode` takes any nesting of dicts, lists, tuples, sets, numbers, text, bytes, numpy arrays and torch
tensors, and splits it into a JSON tree and a list of `Block`s. The tree is a copy; the blocks still
refer to the live memory, so that the caller decides whether to write it now or to copy it first. A
tensor that occurs twice (tied weights) is stored once and comes back as one object. `decode` is the
inverse. torch and numpy are touched only where a state holds them.
"""

import base64
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterops.train.blocks import Block, Reference, is_tensor
from clusterops.train.errors import CorruptCheckpoint, UnsupportedState

_MARK = "$"
_INLINE_BYTES = 4096
_ARRAY_KINDS = "biufcmMSU"  # numpy's letters for everything but objects, records and foreign types

# dtype names -> the names safetensors has for them; anything else is stored as raw bytes.
_SAFETENSORS_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state, split: `tree` is ready for JSON, and refers to `blocks` by name."""

    tree: Any
    blocks: list[Block]


def encode(state: Any) -> Encoded:
    """Splits a state.

    Raises:
        UnsupportedState: something in it can't be stored; the message says where it is.
    """
    encoder = _Encoder()
    return Encoded(encoder.value(state, ""), encoder.blocks)


def decode(tree: Any, blocks: Mapping[str, Any]) -> Any:
    """Puts a state together again from its tree and the objects of its blocks.

    Raises:
        CorruptCheckpoint: the tree refers to what is not there, or is no tree of `encode`.
    """
    if isinstance(tree, list):
        return [decode(item, blocks) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if _MARK not in tree:
        return {key: decode(value, blocks) for key, value in tree.items()}
    try:
        if tree[_MARK] in _BLOCK_KINDS:
            return blocks[tree["ref"]]
        return _DECODERS[tree[_MARK]](tree, blocks)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorruptCheckpoint(f"the stored state has an unreadable part: {error!r}") from None


def references(tree: Any) -> dict[str, Reference]:
    """All blocks that a tree refers to, by name.

    Raises:
        CorruptCheckpoint: a reference is malformed.
    """
    found: dict[str, Reference] = {}
    pending = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            if part.get(_MARK) in _BLOCK_KINDS:
                try:
                    reference = Reference(
                        part["ref"], part[_MARK], part["dtype"], tuple(part["shape"])
                    )
                except (KeyError, TypeError) as error:
                    raise CorruptCheckpoint(f"a reference to a tensor lacks {error}") from None
                found[reference.name] = reference
            else:
                pending.extend(part.values())
    return found


class _Encoder:
    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._names: set[str] = set()
        self._seen: dict[Any, dict[str, Any]] = {}
        self._open: set[int] = set()  # containers on the way down: a cycle meets itself here

    def value(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {_MARK: "float", "value": repr(value)}
        if kind in (bytes, bytearray):
            return self._bytes(bytes(value), path)
        if kind in _CONTAINERS:
            if id(value) in self._open:
                raise UnsupportedState(f"{path or 'the state'} contains itself")
            self._open.add(id(value))
            try:
                return self._container(value, path)
            finally:
                self._open.discard(id(value))
        if is_tensor(value):
            return self._tensor(value, path)
        return self._foreign(value, kind, path)

    def _container(self, value: Any, path: str) -> Any:
        kind = type(value)
        if isinstance(value, dict):
            if kind is dict and all(type(key) is str for key in value) and _MARK not in value:
                return {key: self.value(item, _join(path, key)) for key, item in value.items()}
            items = [
                [self.value(key, _join(path, "key")), self.value(item, _join(path, str(key)))]
                for key, item in value.items()
            ]
            return {_MARK: _CONTAINERS[kind], "items": items}
        members = list(value)
        if isinstance(value, set | frozenset):
            # Sets have no order of their own; one that depends on the hash seed is worse than any.
            members.sort(key=lambda member: (type(member).__name__, repr(member)))
        parts = [self.value(item, _join(path, str(i))) for i, item in enumerate(members)]
        if kind is list:
            return parts
        marked: dict[str, Any] = {_MARK: _CONTAINERS[kind], "items": parts}
        if isinstance(value, deque):
            marked["maxlen"] = value.maxlen
        return marked

    def _bytes(self, value: bytes, path: str) -> dict[str, Any]:
        if len(value) <= _INLINE_BYTES:
            return {_MARK: "bytes", "value": base64.b64encode(value).decode()}
        shape = (len(value),)
        return self._block("blob", "uint8", "U8", shape, len(value), 1, value, path)

    def _foreign(self, value: Any, kind: type, path: str) -> Any:
        module = kind.__module__.partition(".")[0]
        if kind is complex:
            return {_MARK: "complex", "value": [repr(value.real), repr(value.imag)]}
        if module == "torch":
            if kind.__name__ == "Size":
                return {_MARK: "size", "items": list(value)}
            if kind.__name__ == "dtype":
                return {_MARK: "dtype", "value": str(value).removeprefix("torch.")}
            if kind.__name__ == "device":
                return {_MARK: "device", "value": str(value)}
        if module == "numpy":
            return self._numpy(value, path)
        raise UnsupportedState(
            f"{path or 'the state'} is a {kind.__module__}.{kind.__qualname__}, which can't be "
            "stored without pickle; give resume() an object whose state_dict() returns plain "
            "values, numpy arrays and tensors"
        )

    def _numpy(self, value: Any, path: str) -> Any:
        import numpy

        if isinstance(value, numpy.generic):
            array = numpy.asarray(value)
            content = base64.b64encode(array.tobytes()).decode()
            self._require_plain(array, path)
            return {_MARK: "scalar", "dtype": array.dtype.str, "value": content}
        if type(value) is not numpy.ndarray:
            raise UnsupportedState(f"{path} is a {type(value).__qualname__}; store a plain ndarray")
        self._require_plain(value, path)
        key = (
            "numpy",
            value.__array_interface__["data"][0],
            value.shape,
            value.strides,
            value.dtype.str,
        )
        if value.nbytes and key in self._seen:
            return self._seen[key]
        stored = _SAFETENSORS_DTYPES.get(value.dtype.name) if value.dtype.isnative else None
        marked = self._block(
            "array",
            value.dtype.str,
            stored,
            tuple(value.shape),
            value.nbytes,
            value.dtype.itemsize,
            value,
            path,
        )
        self._seen[key] = marked
        return marked

    def _require_plain(self, array: Any, path: str) -> None:
        if array.dtype.kind not in _ARRAY_KINDS:
            raise UnsupportedState(
                f"{path} is an array of {array.dtype}, which can't be stored without pickle"
            )

    def _tensor(self, value: Any, path: str) -> dict[str, Any]:
        reason = _why_not_plain(value)
        if reason:
            raise UnsupportedState(f"{path or 'the state'} is {reason}; store a plain tensor")
        key = (
            "torch",
            str(value.device),
            value.untyped_storage().data_ptr(),
            value.storage_offset(),
            tuple(value.shape),
            value.stride(),
            value.dtype,
            value.is_conj(),
            value.is_neg(),
        )
        if value.numel() and key in self._seen:
            return self._seen[key]
        dtype = str(value.dtype).removeprefix("torch.")
        marked = self._block(
            "tensor",
            dtype,
            _SAFETENSORS_DTYPES.get(dtype),
            tuple(value.shape),
            value.numel() * value.element_size(),
            value.element_size(),
            value,
            path,
        )
        self._seen[key] = marked
        return marked

    def _block(
        self,
        kind: str,
        dtype: str,
        stored: str | None,
        shape: tuple[int, ...],
        size: int,
        item_bytes: int,
        source: Any,
        path: str,
    ) -> dict[str, Any]:
        name = path or "state"
        while name in self._names or name == "__metadata__":
            name += "~"
        self._names.add(name)
        self.blocks.append(
            Block(
                name,
                source,
                stored or "U8",
                shape if stored else (size,),
                size,
                max(1, item_bytes),
            )
        )
        return {_MARK: kind, "ref": name, "dtype": dtype, "shape": list(shape)}


def _why_not_plain(tensor: Any) -> str:
    import torch

    if tensor.is_sparse or tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.is_meta:
        return "a tensor on the meta device, without content"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a {type(tensor).__module__}.{type(tensor).__qualname__}"
    return ""


def _join(path: str, part: str) -> str:
    return f"{path}/{part}" if path else part


def _decode_items(tree: Mapping[str, Any], blocks: Mapping[str, Any]) -> list[Any]:
    return [decode(item, blocks) for item in tree["items"]]


def _decode_pairs(tree: Mapping[str, Any], blocks: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return [(decode(key, blocks), decode(value, blocks)) for key, value in tree["items"]]


def _decode_counter(tree: Mapping[str, Any], blocks: Mapping[str, Any]) -> Counter[Any]:
    return Counter(dict(_decode_pairs(tree, blocks)))


def _decode_scalar(tree: Mapping[str, Any], _blocks: Mapping[str, Any]) -> Any:
    import numpy

    content = base64.b64decode(tree["value"], validate=True)
    return numpy.frombuffer(content, numpy.dtype(tree["dtype"]))[0]


def _decode_torch(tree: Mapping[str, Any], _blocks: Mapping[str, Any]) -> Any:
    import torch

    if tree[_MARK] == "size":
        return torch.Size(tree["items"])
    if tree[_MARK] == "device":
        return torch.device(tree["value"])
    return getattr(torch, tree["value"])


_BLOCK_KINDS = frozenset({"tensor", "array", "blob"})

_CONTAINERS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
    dict: "dict",
    OrderedDict: "ordered_dict",
    Counter: "counter",
}

_DECODERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = {
    "float": lambda tree, _: float(tree["value"]),
    "complex": lambda tree, _: complex(*(float(part) for part in tree["value"])),
    "bytes": lambda tree, _: base64.b64decode(tree["value"], validate=True),
    "scalar": _decode_scalar,
    "tuple": lambda tree, blocks: tuple(_decode_items(tree, blocks)),
    "set": lambda tree, blocks: set(_decode_items(tree, blocks)),
    "frozenset": lambda tree, blocks: frozenset(_decode_items(tree, blocks)),
    "deque": lambda tree, blocks: deque(_decode_items(tree, blocks), tree["maxlen"]),
    "dict": lambda tree, blocks: dict(_decode_pairs(tree, blocks)),
    "ordered_dict": lambda tree, blocks: OrderedDict(_decode_pairs(tree, blocks)),
    "counter": _decode_counter,
    "size": _decode_torch,
    "dtype": _decode_torch,
    "device": _decode_torch,
}
