"""Raw text of a log line to plain text: no colours, no control characters, escapes undone.

Every step reads the text once. What terminals, rsyslog and /dev/kmsg do to a line is undone here, so
that the forms of the driver's messages can be written down once.
"""

import re

MAX_CHARACTERS = 16_384
"""Longer lines are cut: no record of a kernel is longer than a few thousand."""

# Colours and other sequences of terminals; each alternative ends where the next escape begins.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*\x07?|[@-Z\\^_])")
# /dev/kmsg writes bytes that it does not print as \x0a, rsyslog control characters as #012.
_KMSG_ESCAPES = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")
_RSYSLOG_ESCAPE = re.compile(r"#(0[0-3][0-7])", re.ASCII)
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))


def clean(text: str) -> str:
    """The text of one record, at most MAX_CHARACTERS; line breaks within it are kept as such."""
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS]
    if "\\x" in text:
        text = _KMSG_ESCAPES.sub(_bytes, text)
    if "#0" in text:
        text = _RSYSLOG_ESCAPE.sub(_character, text)
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _TERMINAL.sub("", text)
    return text.translate(_CONTROL)


def _bytes(found: re.Match[str]) -> str:
    return bytes.fromhex(found.group().replace("\\x", "")).decode("utf-8", "replace")


def _character(found: re.Match[str]) -> str:
    return chr(int(found.group(1), 8))
