"""Did you mean: the known word that a misspelt one stands for."""

import difflib
from collections.abc import Sequence


def closest(word: str, known: Sequence[str]) -> str | None:
    """The most similar known word, None when nothing is similar. For words that are surely wrong."""
    by_lower_case = {candidate.lower(): candidate for candidate in reversed(known)}
    found = difflib.get_close_matches(word.lower(), list(by_lower_case), n=1, cutoff=0.6)
    return by_lower_case[found[0]] if found else None


def slip_of(word: str, known: Sequence[str]) -> str | None:
    """The known word of which this one is a slip of the finger, None if it is known or just new.

    For words that may be right though unknown here, such as the fields of a newer Kubernetes: only
    another case, or one or two letters more, fewer, wrong or swapped, count as a slip.
    """
    if word in known:
        return None
    allowed = 1 if len(word) <= 5 else 2
    for candidate in known:
        if candidate.lower() == word.lower():
            return candidate
    near = [(edits(word, candidate, allowed), candidate) for candidate in known]
    count, candidate = min(near, default=(allowed + 1, ""))
    return candidate if count <= allowed else None


def edits(word: str, other: str, limit: int) -> int:
    """How many letters to insert, drop, change or swap with their neighbour; `limit` + 1 = more."""
    if abs(len(word) - len(other)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        before, above, row = row, before, [i]
        for j, wanted in enumerate(other, start=1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                best = min(best, above[j - 2] + 1)
            row.append(best)
    return min(row[-1], limit + 1)
