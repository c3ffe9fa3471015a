"""Foreign text made safe to show: names, messages and log lines that others wrote.

A terminal obeys control characters; a line break forges a second log line. What comes from outside
is escaped here before it is printed or put into a message.
"""

import unicodedata
from collections.abc import Iterable

# Cc: control, Cf: format (bidirectional overrides, zero width), Zl/Zp: line and paragraph breaks.
_UNSAFE_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str, *, keep: str = "") -> str:
    """The text with every character that could move the cursor or hide another shown as an escape.

    `keep` lists characters to leave alone, e.g. a line break in a text of several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character in keep or not _unsafe(character) else _escape(character)
        for character in text
    )


def shortened(text: str, limit: int = 80) -> str:
    """The text made printable and cut to `limit` characters, the cut marked."""
    shown = printable(text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def listed(words: Iterable[str], last: str = "or") -> str:
    """Words as a sentence names them: `a`, `a or b`, `a, b or c`."""
    all_words = list(words)
    if len(all_words) < 2:
        return "".join(all_words)
    return f"{', '.join(all_words[:-1])} {last} {all_words[-1]}"


def _unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE_CATEGORIES


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
