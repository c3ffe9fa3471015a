"""What every object on the wire has in common: camelCase, bounds, metadata, conditions.

Models here are read from decoded JSON or YAML and are strict: no text where a number belongs, no
unknown field. The schema each type gives is what the CRD generator turns into a structural one.
Behaviour stops at validation.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

Path = tuple[str | int, ...]
"""Where a value sits in an object: field names and list positions from the root."""

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))?$"


class Fault(NamedTuple):
    """One broken rule: the place relative to the object it was found in, and the rule in words."""

    path: Path
    message: str


class WireModel(BaseModel):
    """Base of all kinds: snake_case here, camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def from_wire(cls, wire: Any) -> Self:
        """Reads a decoded object; only the names of the wire are accepted.

        Raises:
            pydantic.ValidationError: the object breaks a rule; `validation.problems` puts it in words.
        """
        return cls.model_validate(wire, by_alias=True, by_name=False)

    def to_wire(self) -> dict[str, Any]:
        """The object as JSON values; fields that were never set, or hold nothing, are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)

    @classmethod
    def spanning_faults(cls, wire: Mapping[str, Any]) -> Iterator[Fault]:
        """Rules that no single field can check. `wire` may be wrong in other ways: read with care."""
        del wire
        return iter(())

    def refuse_spanning_faults(self) -> Self:
        """Ends validation with every fault that spans fields, each at its own place.

        Raises:
            pydantic.ValidationError: there is at least one.
        """
        faults = list(self.spanning_faults(self.to_wire()))
        if faults:
            raise ValidationError.from_exception_data(
                type(self).__name__,
                [
                    InitErrorDetails(
                        type=PydanticCustomError("spanning", "{rule}", {"rule": fault.message}),
                        loc=fault.path,
                        input=None,
                    )
                    for fault in faults
                ],
            )
        return self


def _matching(pattern: str, rule: str) -> AfterValidator:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def check(text: str) -> str:
        if not compiled.match(text):
            raise PydanticCustomError("pattern", "{rule}", {"rule": rule})
        return text

    return AfterValidator(check)


def _text_schema(pattern: str, longest: int) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "string", "pattern": pattern, "minLength": 1, "maxLength": longest}
    )


DnsLabel = Annotated[
    StrictStr,
    Field(min_length=1, max_length=63),
    _matching(DNS_LABEL, 'must be lower-case letters, digits and "-", as in "llm-7b"'),
    _text_schema(DNS_LABEL, 63),
]
"""A DNS label of RFC 1123, at most 63 characters."""

DnsSubdomain = Annotated[
    StrictStr,
    Field(min_length=1, max_length=253),
    _matching(DNS_SUBDOMAIN, 'must be lower-case letters, digits, "-" and ".", as in "team-a.low"'),
    _text_schema(DNS_SUBDOMAIN, 253),
]
"""The name of most objects: a DNS subdomain of at most 253 characters."""


def _quantity(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole or (isinstance(value, str) and re.match(QUANTITY.removesuffix("$") + r"\Z", value)):
        return value
    raise PydanticCustomError("quantity", 'must be a quantity such as 8, "500m" or "16Gi"')


Quantity = Annotated[
    int | str,
    BeforeValidator(_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY}),
]
"""An amount of a resource: a whole number, or text with a suffix."""

Count = Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]
"""How many there are: a whole number from 0."""

Steps = Annotated[StrictInt, Field(ge=0, le=2**53)]
"""Completed optimizer steps, or seconds of GPU time: from 0, exact in every JSON reader."""

Seconds = Annotated[StrictInt, Field(ge=0, le=10 * 365 * 86_400)]
"""A duration in whole seconds, at most ten years."""

Text = Annotated[StrictStr, Field(max_length=32_768)]
"""A message that people read."""

Timestamp = AwareDatetime
"""A moment in RFC 3339 with its offset, as in 2026-11-30T19:00:00Z."""


class Metadata(WireModel):
    """What every object carries; the API server fills in the rest and keeps what it knows."""

    model_config = ConfigDict(extra="allow")

    name: DnsSubdomain | None = None
    """Unique among objects of the kind in the namespace."""
    generate_name: StrictStr | None = None
    """A prefix to which the server appends random characters when there is no name."""
    namespace: DnsLabel | None = None
    """The namespace; the one in use when absent."""
    labels: dict[StrictStr, StrictStr] | None = None
    """Short facts to select by."""
    annotations: dict[StrictStr, StrictStr] | None = None
    """Facts of any length."""


class Condition(WireModel):
    """A standard Kubernetes condition: one aspect of an object, true, false or unknown."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[StrictStr, Field(min_length=1, max_length=316)]
    """Which aspect; there is one condition a type."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[StrictStr, Field(max_length=1024)] = ""
    """One word for programs."""
    message: Text = ""
    """A sentence for people."""
    last_transition_time: Timestamp | None = None
    """When `status` last changed."""
    observed_generation: Annotated[StrictInt, Field(ge=0)] | None = None
    """The generation of the object that this is about."""


def map_list(*keys: str, at_most: int) -> Any:
    """The default and schema of a list whose items are told apart by `keys`, at most `at_most` long."""
    return Field(
        default=(),
        max_length=at_most,
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(keys),
        },
    )


Conditions = tuple[Condition, ...]
