"""Curves as SVG and as lines of a terminal: small, and without a plotting library."""

import itertools
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
_SHARED = "="
_MOST_POINTS = 400
Curve = Sequence[tuple[float, float]]


class Frame(NamedTuple):
    """The range of a plot, never empty."""

    left: float
    right: float
    low: float
    high: float

    def across(self, x: float) -> float:
        """0 at the left edge, 1 at the right."""
        return (x - self.left) / (self.right - self.left)

    def up(self, y: float) -> float:
        """0 at the bottom, 1 at the top."""
        return (y - self.low) / (self.high - self.low)


def frame_of(curves: Mapping[str, Curve]) -> Frame | None:
    """The range that holds every finite point, or none when there is no such point."""
    points = [point for curve in curves.values() for point in finite(curve)]
    if not points:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    margin = (max(ys) - min(ys)) * 0.05 or abs(max(ys)) * 0.05 or 1.0
    right = max(xs) if max(xs) > min(xs) else min(xs) + 1
    return Frame(min(xs), right, min(ys) - margin, max(ys) + margin)


def finite(curve: Curve) -> list[tuple[float, float]]:
    """The points that can be drawn."""
    return [(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)]


def thinned(curve: Curve, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points: the means of neighbours, where there are more."""
    points = finite(curve)
    if len(points) <= most:
        return points
    borders = [len(points) * number // most for number in range(most + 1)]
    pieces = [points[start:stop] for start, stop in itertools.pairwise(borders)]
    return [
        (sum(x for x, _ in piece) / len(piece), sum(y for _, y in piece) / len(piece))
        for piece in pieces
    ]


def svg(title: str, curves: Mapping[str, Curve], width: int = 460, height: int = 220) -> str:
    """A plot for a page. Names are escaped."""
    frame = frame_of(curves)
    left, top, inner, tall = 56, 26, width - 70, height - 56
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">',
        f'<text x="{left}" y="16" class="title">{escape(title)}</text>',
        f'<rect x="{left}" y="{top}" width="{inner}" height="{tall}" class="frame"/>',
    ]
    if frame is None:
        parts.append(f'<text x="{left + 8}" y="{top + 20}" class="tick">no values</text>')
        return "".join(parts) + "</svg>"
    for share in (0.0, 0.5, 1.0):
        value = frame.low + share * (frame.high - frame.low)
        y = top + tall * (1 - share)
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" class="tick" text-anchor="end">{value:.3g}</text>'
            f'<line x1="{left}" x2="{left + inner}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        )
    for share in (0.0, 1.0):
        value = frame.left + share * (frame.right - frame.left)
        anchor = "start" if share == 0 else "end"
        x = left + inner * share
        parts.append(
            f'<text x="{x:.1f}" y="{top + tall + 14}" class="tick" text-anchor="{anchor}">'
            f"{value:g}</text>"
        )
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{left + inner * frame.across(x):.1f},{top + tall * (1 - frame.up(y)):.1f}"
            for x, y in thinned(curve)
        )
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
        if len(curves) > 1:
            x = left + 8 + 120 * number
            parts.append(
                f'<text x="{x}" y="{height - 8}" fill="{colour}" class="name">{escape(name)}</text>'
            )
    return "".join(parts) + "</svg>"


def terminal(curves: Mapping[str, Curve], width: int = 64, height: int = 14) -> list[str]:
    """A plot of characters; each curve has its own letter, and a line says which."""
    frame = frame_of(curves)
    if frame is None:
        return ["(no values)"]
    canvas = [[" "] * width for _ in range(height)]
    letters = _letters(list(curves))
    for name, curve in curves.items():
        for x, y in finite(curve):
            column = round(frame.across(x) * (width - 1))
            row = height - 1 - round(frame.up(y) * (height - 1))
            here = canvas[row][column]
            canvas[row][column] = letters[name] if here in (" ", letters[name]) else _SHARED
    lines = []
    for number, cells in enumerate(canvas):
        value = frame.high - (frame.high - frame.low) * number / (height - 1)
        label = f"{value:8.3g} " if number % 4 == 0 or number == height - 1 else " " * 9
        lines.append(f"{label}|{''.join(cells).rstrip()}")
    lines.append(" " * 9 + "+" + "-" * width)
    lines.append(f"{' ' * 10}{frame.left:<{width // 2}g}{frame.right:>{width // 2}g}")
    shared = f", {_SHARED} = several" if any(_SHARED in row for row in canvas) else ""
    lines.append(" " * 10 + ", ".join(f"{letters[name]} = {name}" for name in curves) + shared)
    return lines


def _letters(names: Sequence[str]) -> dict[str, str]:
    taken: dict[str, str] = {}
    for name in names:
        free = [letter for letter in name + "*+x." if letter not in taken.values()]
        taken[name] = free[0]
    return taken
