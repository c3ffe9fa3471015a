"""From a file and `a.b=value` words to a configuration, and where each of its values came from."""

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rlhf.config.sections import RunConfig

DEFAULT = "default"


class ConfigurationInvalid(ValueError):
    """What is wrong with the configuration, one line each, with the place it was said."""


class Resolved(NamedTuple):
    """A configuration, and for each dotted key the place that its value came from."""

    config: RunConfig
    origins: dict[str, str]


def resolve(file: Path | None, overrides: Sequence[str] = ()) -> Resolved:
    """Reads a YAML or TOML file, applies the overrides in order, and validates all of it.

    Raises:
        ConfigurationInvalid: a file that can't be read, an unknown key, an impossible value.
    """
    if file is None:
        return resolve_values({}, "", overrides)
    return resolve_values(_read(file), str(file), overrides)


def resolve_values(
    content: Mapping[str, Any], origin: str, overrides: Sequence[str] = ()
) -> Resolved:
    """The same for values that were read already; `origin` says where.

    Raises:
        ConfigurationInvalid: an unknown key, an impossible value.
    """
    said: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, value in _flat(content):
        _put(said, key, value)
        origins[key] = origin
    for word in overrides:
        key, value = _override(word)
        _put(said, key, value)
        origins = {name: place for name, place in origins.items() if not name.startswith(f"{key}.")}
        origins[key] = f"command line: {word}"
    _refuse_unknown(said, origins)
    try:
        config = RunConfig.model_validate(said)
    except ValidationError as error:
        raise ConfigurationInvalid("\n".join(_told(error, origins))) from None
    every = {key: origins.get(key, DEFAULT) for key, _ in _flat(config.model_dump(mode="json"))}
    return Resolved(config, every)


def dump(config: RunConfig, **more: Any) -> str:
    """The configuration as YAML, as `config.resolved.yaml` holds it."""
    return yaml.safe_dump({**more, **config.model_dump(mode="json")}, sort_keys=False)


def stored_values(file: Path) -> dict[str, Any]:
    """What `config.resolved.yaml` of a run says of the configuration, without what else it says.

    Raises:
        ConfigurationInvalid: it can't be read.
    """
    return {name: value for name, value in _read(file).items() if name in RunConfig.model_fields}


def read_resolved(file: Path) -> RunConfig:
    """The configuration that a run was started with.

    Raises:
        ConfigurationInvalid: the file is missing, or was changed into something impossible.
    """
    return resolve_values(stored_values(file), str(file)).config


def run_id_of(file: Path) -> str:
    """The identity of the run that wrote this file.

    Raises:
        ConfigurationInvalid: it says none.
    """
    run_id = _read(file).get("run_id")
    if not isinstance(run_id, str) or not run_id:
        raise ConfigurationInvalid(f"{file} names no run_id: it is not the file of a run")
    return run_id


def values(config: RunConfig) -> dict[str, Any]:
    """Every value by its dotted key."""
    return dict(_flat(config.model_dump(mode="json")))


def _read(file: Path) -> Mapping[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text) if file.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ConfigurationInvalid(f"{file}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationInvalid(
            f"{file}: keys and values are wanted, not a {type(content).__name__}"
        )
    return content


def _override(word: str) -> tuple[str, Any]:
    key, equals, text = word.partition("=")
    if not equals or not key or any(not part for part in key.split(".")):
        raise ConfigurationInvalid(f"{word!r} is no setting; write it as a.b=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationInvalid(f"{word!r}: {error}") from error
    if isinstance(value, str):
        value = _number(value)  # YAML takes 3e-4 for a text
    return key, value


def _number(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _flat(content: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in content.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _put(said: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        below = said.get(name)
        if not isinstance(below, dict):
            below = said[name] = {}
        said = below
    said[last] = value


def _refuse_unknown(said: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """Unknown keys, all of them at once, each with the known one that is nearest."""
    fields = dict(_fields(RunConfig))
    known = list(fields)
    tables = [f"{key}." for key, field in fields.items() if get_origin(field.annotation) is dict]
    wrong = []
    for key, _ in _flat(said):
        if key in known or any(one.startswith(f"{key}.") for one in known):
            continue
        if key.startswith(tuple(tables)):
            continue  # names of the user's own; what is below them is validated with the values
        near = _nearest(key, known)
        meant = f"; did you mean {near}?" if near else ""
        wrong.append(f"unknown key {key} ({origins.get(key, 'file')}){meant}")
    if wrong:
        raise ConfigurationInvalid("\n".join(wrong))


def _nearest(key: str, known: Sequence[str]) -> str:
    """The key that was meant: one that is nearly the same, or of this name in another section."""
    last = key.rsplit(".", 1)[-1]
    elsewhere = [one for one in known if one.rsplit(".", 1)[-1] == last]
    by_last = {one.rsplit(".", 1)[-1]: one for one in known}
    alike = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
    similar = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    similar_last = [by_last[one] for one in difflib.get_close_matches(last, list(by_last), n=1)]
    return next(iter([*alike, *elsewhere, *similar, *similar_last]), "")


def _fields(model: type[BaseModel], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        named = get_origin(field.annotation) is dict
        kinds = [] if named else [field.annotation, *get_args(field.annotation)]
        below = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if below is not None:
            yield from _fields(below, f"{before}{name}.")
        else:
            yield f"{before}{name}", field


def _told(error: ValidationError, origins: Mapping[str, str]) -> Iterable[str]:
    for one in error.errors(include_url=False):
        key = ".".join(str(part) for part in one["loc"]) or "configuration"
        said = next((origins[name] for name in origins if name == key), None)
        what = one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            what = "unknown key"
        given = "" if isinstance(one["input"], dict | BaseModel) else f", not {one['input']!r}"
        yield f"{key}: {what}{given}" + (f" ({said})" if said else "")
