"""Merge and JSON patches (RFC 7386, RFC 6902).

Targets stay unchanged; results of merges share with them what did not change.

Strategic merge patches have a module of their own, and the same entry point here.
"""

from typing import Any

import msgspec

from clusterops.apiserver.kind import Kind
from clusterops.apiserver.patch_error import PatchError
from clusterops.apiserver.strategic_merge import merge_object

__all__ = ["PatchError", "json_patch", "merge_patch", "strategic_merge_patch"]

OPERATIONS_LIMIT = 10_000


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
    if type(patch) is not dict:
        return patch
    merged = dict(target) if type(target) is dict else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif type(value) is dict:
            merged[name] = merge_patch(merged.get(name), value)
        else:
            merged[name] = value
    return merged


def strategic_merge_patch(
    kind: Kind, target: dict[str, Any], patch: dict[str, Any]
) -> dict[str, Any]:
    """Merge with the list keys of a built-in kind and the `$` directives.

    Raises PatchError 415 for custom resources, 400 for a malformed directive.
    """
    if not kind.builtin:
        raise PatchError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, "
            "application/apply-patch+yaml",
        )
    if type(patch) is not dict:
        raise PatchError(400, "BadRequest", "a strategic merge patch must be an object")
    return merge_object(kind.schema.root, target, patch)


def json_patch(target: Any, patch: Any) -> Any:
    """RFC 6902.

    Raises PatchError 422 when an operation does not fit or a test fails, 400 when malformed.
    """
    if type(patch) is not list:
        raise PatchError(400, "BadRequest", "a JSON patch must be an array of operations")
    if len(patch) > OPERATIONS_LIMIT:
        raise PatchError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(patch)}",
        )
    # One deep copy, then changes in place: operations may move what others made.
    document = _copy(target)
    for operation in patch:
        if type(operation) is not dict or not isinstance(operation.get("op"), str):
            raise PatchError(
                400, "BadRequest", "a JSON patch operation must be an object with `op`"
            )
        document = _operate(document, operation)
    return document


def _copy(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    name, path = operation["op"], _pointer(operation.get("path"), "path")
    if name in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(400, "BadRequest", f"JSON patch operation {name} needs a `value`")
    match name:
        case "add":
            return _add(document, path, _copy(operation["value"]))
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            return _replace(document, path, _copy(operation["value"]))
        case "test":
            _test(document, path, operation["value"])
            return document
        case "move":
            source = _pointer(operation.get("from"), "from")
            if path[: len(source)] == source and path != source:
                raise _unfit("move", path, "a value cannot be moved into itself")
            document, value = _remove(document, source)
            return _add(document, path, value)
        case "copy":
            return _add(
                document, path, _copy(_get(document, _pointer(operation.get("from"), "from")))
            )
    raise PatchError(400, "BadRequest", f"Unexpected kind: {name}")


def _pointer(text: Any, field: str) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(
            400, "BadRequest", f"JSON patch `{field}` must be a JSON pointer: {text!r}"
        )
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _unfit(operation: str, path: list[str], detail: str) -> PatchError:
    where = "".join(f"/{part}" for part in path)
    return PatchError(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request: "
        f"{operation} operation does not apply: doc is missing path: {where}: {detail}",
    )


def _get(document: Any, path: list[str], operation: str = "copy") -> Any:
    value = document
    for part in path:
        if type(value) is dict and part in value:
            value = value[part]
        elif type(value) is list:
            value = value[_index(part, len(value) - 1, operation, path)]
        else:
            raise _unfit(operation, path, "missing value")
    return value


def _index(part: str, highest: int, operation: str, path: list[str]) -> int:
    if not part.isascii() or not part.isdigit() or (part != "0" and part.startswith("0")):
        raise _unfit(operation, path, f"{part!r} is no array index")
    index = int(part)
    if index > highest:
        raise _unfit(operation, path, "index out of range")
    return index


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1], "add"), path[-1]
    if type(parent) is dict:
        parent[last] = value
    elif type(parent) is list:
        at = len(parent) if last == "-" else _index(last, len(parent), "add", path)
        parent.insert(at, value)
    else:
        raise _unfit("add", path, "the parent is neither object nor array")
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    if not path:
        return None, document
    parent, last = _get(document, path[:-1], "remove"), path[-1]
    if type(parent) is dict and last in parent:
        return document, parent.pop(last)
    if type(parent) is list:
        return document, parent.pop(_index(last, len(parent) - 1, "remove", path))
    raise _unfit("remove", path, "missing value")


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1], "replace"), path[-1]
    if type(parent) is dict and last in parent:
        parent[last] = value
    elif type(parent) is list:
        parent[_index(last, len(parent) - 1, "replace", path)] = value
    else:
        raise _unfit("replace", path, "missing key")
    return document


def _test(document: Any, path: list[str], wanted: Any) -> None:
    try:
        found = _get(document, path, "test")
    except PatchError:
        if wanted is None:
            return  # as real API servers have it: what is missing equals null
        raise
    if not _same(found, wanted):
        where = "".join(f"/{part}" for part in path)
        raise PatchError(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request: "
            f"testing value {where} failed: test failed",
        )


def _same(left: Any, right: Any) -> bool:
    """JSON equality: true is not 1."""
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(_same(v, right[k]) for k, v in left.items())
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)
