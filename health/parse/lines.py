"""One record of a log to what it says: the one door to the parser.

Whatever cannot be used has a reason, so that nothing is dropped without being counted.
"""

from enum import StrEnum
from typing import NamedTuple

from health.events import Fault
from health.parse import forms, prefix
from health.parse.clean import MAX_CHARACTERS, clean


class Unused(StrEnum):
    """Why a line yields no fault."""

    NOT_A_DRIVER_LINE = "not_a_driver_line"
    DRIVER_MESSAGE = "driver_message"
    """Of the GPU driver, but nothing that says a fault."""
    NOT_FROM_KERNEL = "not_from_kernel"
    """Quotes a driver message, or was written into the log by a user."""
    MALFORMED = "malformed"
    """Begins like a fault report and does not go on like one."""


class Line(NamedTuple):
    """What a record says. `what` or `unused` is set, never both; `head` is the text before."""

    what: Fault | None
    unused: Unused | None
    head: str
    body: str
    cut: bool = False
    """The record was longer than any the kernel prints, and only its beginning was read."""


_NOT_OURS = Line(None, Unused.NOT_A_DRIVER_LINE, "", "")


def line(raw: str) -> Line:
    """Reads one record. Takes time linear in its length, and never raises."""
    cut = len(raw) > MAX_CHARACTERS
    text = clean(raw)
    start = text.find("NVRM:")
    if start < 0:
        return _without_nvrm(text, cut)
    head, body = text[:start], text[start:]
    if not prefix.from_kernel(head):
        return Line(None, Unused.NOT_FROM_KERNEL, head, body, cut)
    at = _xid_start(body)
    if at >= 0:
        found = forms.xid(body, at)
        return Line(found, None if found else Unused.MALFORMED, head, body, cut)
    what = forms.other(body)
    return Line(what, None if what else Unused.DRIVER_MESSAGE, head, body, cut)


def _without_nvrm(text: str, cut: bool) -> Line:
    start = text.find("nvidia-nvswitch")
    if start < 0:
        start = text.find("Xid (")
        if start < 0 or (start > 0 and text[start - 1].isalnum()):
            return _NOT_OURS._replace(cut=True) if cut else _NOT_OURS
        return _made(forms.xid(text, start), text[:start], text[start:], cut)
    body = text[start:]
    if "SXid" not in body[:40]:
        return Line(None, Unused.DRIVER_MESSAGE, text[:start], body, cut)
    return _made(forms.sxid(body), text[:start], body, cut)


def _made(what: Fault | None, head: str, body: str, cut: bool) -> Line:
    if not prefix.from_kernel(head):
        return Line(None, Unused.NOT_FROM_KERNEL, head, body, cut)
    return Line(what, None if what else Unused.MALFORMED, head, body, cut)


def _xid_start(body: str) -> int:
    """Where the report begins: right after the driver's name, or after it in a record of several lines."""
    if body.startswith("NVRM: Xid ("):
        return 6
    at = body.find("Xid (")
    if at < 0 or body[5:at].strip(" \t"):
        # Somewhere in the middle: a record of several lines may hold one, a sentence may quote one.
        at = body.find("\n")
        while at >= 0:
            following = body[at + 1 : at + 200].lstrip()
            if following.startswith("NVRM: Xid ("):
                return body.index("Xid (", at)
            at = body.find("\n", at + 1)
        return -1
    return at
