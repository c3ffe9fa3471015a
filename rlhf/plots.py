"""Curves as SVG, as lines of a terminal, and as PNG: small, and without a plotting library."""

import itertools
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
_SHARED = "="
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
            for x, y in finite(curve)
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


def png(curves: Mapping[str, Curve], width: int = 640, height: int = 360) -> bytes:
    """A plot as a PNG file: white, a frame, and one line a curve, in the order of `COLOURS`."""
    pixels = [bytearray(b"\xff\xff\xff" * width) for _ in range(height)]
    margin = 12
    inner, tall = width - 2 * margin, height - 2 * margin
    for x in range(margin, width - margin):
        for y in (margin, height - margin - 1):
            _dot(pixels, x, y, (180, 180, 180))
    for y in range(margin, height - margin):
        for x in (margin, width - margin - 1):
            _dot(pixels, x, y, (180, 180, 180))
    frame = frame_of(curves)
    if frame is not None:
        for number, curve in enumerate(curves.values()):
            colour = _rgb(COLOURS[number % len(COLOURS)])
            spots = [
                (
                    margin + frame.across(x) * (inner - 1),
                    margin + (1 - frame.up(y)) * (tall - 1),
                )
                for x, y in finite(curve)
            ]
            for start, stop in itertools.pairwise([*spots[:1], *spots]):
                _line(pixels, start, stop, colour)
    raw = b"".join(b"\x00" + bytes(row) for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + _chunk(b"IDAT", zlib.compress(raw, 9))
        + _chunk(b"IEND", b"")
    )


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _line(
    pixels: list[bytearray],
    start: tuple[float, float],
    stop: tuple[float, float],
    colour: tuple[int, int, int],
) -> None:
    steps = max(1, math.ceil(max(abs(stop[0] - start[0]), abs(stop[1] - start[1]))))
    for number in range(steps + 1):
        x = round(start[0] + (stop[0] - start[0]) * number / steps)
        y = round(start[1] + (stop[1] - start[1]) * number / steps)
        for dy in (0, 1):
            _dot(pixels, x, y + dy, colour)


def _dot(pixels: list[bytearray], x: int, y: int, colour: tuple[int, int, int]) -> None:
    if 0 <= y < len(pixels) and 0 <= 3 * x < len(pixels[0]):
        pixels[y][3 * x : 3 * x + 3] = bytes(colour)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
