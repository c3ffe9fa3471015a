"""Text as it grows token by token, and stop strings found in it.

A token may be a part of a letter, and a stop string may span tokens. So text is held back while it
may still change or turn out to be the beginning of a stop string.
"""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
_BROKEN = "\ufffd"
# A letter has at most 4 bytes: no more tokens can be waiting to become one.
_LONGEST_LETTER = 4


class GrowingText:
    """Decodes a growing list of ids; each call returns the letters that are new and final."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        # Text of ids before `_from` is out; those from there on are decoded together, since a
        # vocabulary may write a token differently after another one.
        self._from = 0
        self._read = 0

    def add(self, token: int) -> str:
        """The text that this token completes; empty while a letter is not whole."""
        self._ids.append(token)
        before = self._decode(self._ids[self._from : self._read])
        now = self._decode(self._ids[self._from :])
        waiting = len(self._ids) - self._read
        if now.endswith(_BROKEN) and waiting < _LONGEST_LETTER:
            return ""
        self._from, self._read = self._read, len(self._ids)
        return now[len(before) :]

    def rest(self) -> str:
        """What was held back, at the end of the response."""
        before = self._decode(self._ids[self._from : self._read])
        return self._decode(self._ids[self._from :])[len(before) :]


class StopStrings:
    """Text with its end before the first stop string."""

    def __init__(self, decode: Decode, stops: Sequence[str]) -> None:
        self._growing = GrowingText(decode)
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def add(self, token: int) -> str:
        """The text that is certain now; `found` says whether a stop string came."""
        return self._taken(self._growing.add(token))

    def rest(self) -> str:
        """What was held back, when the response ends for another reason."""
        if self.found:
            return ""
        text = self._taken(self._growing.rest()) + self._held
        self._held = ""
        return text

    def _taken(self, new: str) -> str:
        if self.found:
            return ""
        text = self._held + new
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        kept = self._undecided(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def _undecided(self, text: str) -> int:
        """How many letters at the end may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
