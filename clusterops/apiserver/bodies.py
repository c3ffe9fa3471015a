"""Decoding request bodies: JSON, the few protobuf messages of kubectl, YAML for apply."""

from typing import Any

import msgspec
import yaml

from clusterops.apiserver import protobuf
from clusterops.apiserver.refusals import bad_request, unsupported_media_type

JSON = "application/json"
YAML = "application/yaml"

_decoder = msgspec.json.Decoder()


def media_type(header: bytes) -> str:
    """The media type of a Content-Type header, without parameters; JSON when it is missing."""
    return header.partition(b";")[0].strip().decode("latin-1").lower() or JSON


def decode_json(body: bytes) -> Any:
    """Any JSON value. Raises 400."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise bad_request(f"the body of the request is no JSON: {error}") from error
    except RecursionError as error:
        raise bad_request("the body of the request is nested too deeply") from error


def decode_object(body: bytes, content_type: str) -> dict[str, Any]:
    """The object in the body of a create, update or delete. Raises 400 and 415."""
    if content_type == protobuf.CONTENT_TYPE:
        return protobuf.decode(body)
    if content_type == YAML:
        return decode_yaml(body)
    if content_type != JSON:
        raise unsupported_media_type((JSON, YAML, protobuf.CONTENT_TYPE))
    return _object(decode_json(body))


def decode_yaml(body: bytes) -> dict[str, Any]:
    """An object in YAML, which nearly always is JSON. Raises 400."""
    try:
        return _object(_decoder.decode(body))
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return _object(yaml.load(body, Loader=_PlainLoader))  # noqa: S506  (a SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise bad_request(f"the body of the request is no YAML: {error}") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad_request("the body of the request is no object")
    return value


class _PlainLoader(yaml.SafeLoader):
    """YAML that means JSON: no aliases (they grow without bound), no dates."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
