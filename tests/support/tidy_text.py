"""Rules over any text of the repository: it speaks of the product, not of one machine."""

import re
from collections.abc import Iterator

from support.tidy_source import Finding

# Spelled in two halves, so that this file does not break its own rules.
_MACHINE = re.compile(r"(?<![\w.\-$}*/])/(?:wo" r"rk|ro" r"ot|ho" r"me/\w+)/\w")
_TEMPORARY = re.compile(r"""["'](/tm""" r"""p)(?:/|["'])""")
_REGISTRIES = re.compile(
    r"(?:py" r"pi\.org|python" r"hosted\.org|proxy\.go" r"lang\.org|npm" r"js\.org|gh" r"cr\.io"
    r"|docker\.io|quay\.io|\bgcr\.io|registry\.k8s\.io|index[-_]url)"
)  # fmt: skip


def machine_paths(path: str, text: str) -> Iterator[Finding]:
    """No path of a developer's machine; a temporary folder by name in tests alone."""
    for number, line in enumerate(text.splitlines(), start=1):
        found = _MACHINE.search(line)
        if found is None and path.endswith(".py") and not path.startswith("tests/"):
            found = _TEMPORARY.search(line)
        if found:
            yield Finding(path, number, f"names the path {found.group(0)}")


def registry_hosts(path: str, text: str) -> Iterator[Finding]:
    """Where packages come from is the installer's own configuration."""
    if path == "uv.lock":
        return
    for number, line in enumerate(text.splitlines(), start=1):
        found = _REGISTRIES.search(line)
        if found:
            yield Finding(path, number, f"names the registry {found.group(0)}")


TEXT_RULES = (machine_paths, registry_hosts)
