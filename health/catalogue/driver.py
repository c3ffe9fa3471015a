"""Driver versions, as far as the meaning of a line depends on them."""

import re
from typing import NamedTuple

_VERSION = re.compile(
    r"R?(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?(?:[^\d.].*)?\Z", re.ASCII | re.DOTALL
)


class DriverVersion(NamedTuple):
    """Compared part by part: 595.45.04 is older than 595.84."""

    major: int
    minor: int = 0
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor:02d}.{self.patch:02d}"


def version(text: str) -> DriverVersion | None:
    """A version as drivers write it (`580.95.05`, `R580`), None when the text is none."""
    found = _VERSION.match(text.strip())
    if found is None:
        return None
    return DriverVersion(*(int(part) for part in found.groups(default="0")))
