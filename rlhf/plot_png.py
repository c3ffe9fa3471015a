"""Curves as a PNG file, with their names and the numbers of their axes, without a plotting library."""

import itertools
import struct
import zlib
from collections.abc import Mapping

from rlhf.plots import COLOURS, Curve, Frame, finite, frame_of

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 36, 30
"""Room around the curves, in pixels."""
_SCALE = 2
_GREY, _LIGHT, _DARK = (150, 150, 150), (228, 228, 228), (70, 70, 70)
Colour = tuple[int, int, int]

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.-+_/=: "
_DOTS = (
    "755572622771747717175571174717747577122275757757172575565656344436555674647"
    "746443455355755722271115255655444475775575555255526564425573656553421672222"
    "5555755552557755525555222712470000200700027200000711244070700202000000"
)
_GLYPHS = {letter: _DOTS[5 * at : 5 * at + 5] for at, letter in enumerate(_LETTERS)}
"""Letters of 3 x 5 dots: a digit a row, whose three bits are the dots."""


def png(curves: Mapping[str, Curve], width: int = 640, height: int = 360) -> bytes:
    """A plot as a PNG file: white, one line a curve in the order of `COLOURS`, its name in its colour.

    Letters are capitals; a name's character that has no glyph is left out.
    """
    canvas = _Canvas(width, height)
    frame = frame_of(curves)
    inner, tall = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    if frame is not None:
        _axes(canvas, frame, inner, tall)
    canvas.rectangle(_LEFT, _TOP, inner, tall, _GREY)
    at = _LEFT
    for number, (name, curve) in enumerate(curves.items()):
        colour = _rgb(COLOURS[number % len(COLOURS)])
        at = canvas.text(at, _TOP - 18, name, colour) + 16
        if frame is None:
            continue
        spots = [
            (_LEFT + frame.across(x) * (inner - 1), _TOP + (1 - frame.up(y)) * (tall - 1))
            for x, y in finite(curve)
        ]
        for start, stop in itertools.pairwise([*spots[:1], *spots]):
            canvas.line(start, stop, colour)
    return canvas.encoded()


def _axes(canvas: "_Canvas", frame: Frame, inner: int, tall: int) -> None:
    """Numbers at the edges, and a light line through the middle ones."""
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _TOP + round((tall - 1) * (1 - share))
        value = f"{frame.low + share * (frame.high - frame.low):.3g}"
        canvas.text(_LEFT - 6 - _width(value), y - 5, value, _DARK)
        if 0 < share < 1:
            canvas.line((_LEFT, y), (_LEFT + inner - 1, y), _LIGHT, thick=1)
    below = _TOP + tall + 8
    canvas.text(_LEFT, below, f"{frame.left:g}", _DARK)
    last = f"{frame.right:g}"
    canvas.text(_LEFT + inner - _width(last), below, last, _DARK)


class _Canvas:
    """Rows of red, green and blue. What lies outside is not drawn."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._rows = [bytearray(b"\xff\xff\xff" * width) for _ in range(height)]

    def dot(self, x: int, y: int, colour: Colour) -> None:
        """One pixel."""
        if 0 <= y < self._height and 0 <= x < self._width:
            self._rows[y][3 * x : 3 * x + 3] = bytes(colour)

    def line(
        self, start: tuple[float, float], stop: tuple[float, float], colour: Colour, thick: int = 2
    ) -> None:
        """A straight line, so many pixels high."""
        steps = max(1, round(max(abs(stop[0] - start[0]), abs(stop[1] - start[1]))))
        for number in range(steps + 1):
            x = round(start[0] + (stop[0] - start[0]) * number / steps)
            y = round(start[1] + (stop[1] - start[1]) * number / steps)
            for below in range(thick):
                self.dot(x, y + below, colour)

    def rectangle(self, left: int, top: int, width: int, height: int, colour: Colour) -> None:
        """Its four sides."""
        right, bottom = left + width - 1, top + height - 1
        for start, stop in (
            ((left, top), (right, top)),
            ((left, bottom), (right, bottom)),
            ((left, top), (left, bottom)),
            ((right, top), (right, bottom)),
        ):
            self.line(start, stop, colour, thick=1)

    def text(self, left: int, top: int, words: str, colour: Colour) -> int:
        """Words in capitals; the column behind them."""
        for letter in words.upper():
            glyph = _GLYPHS.get(letter)
            if glyph is None:
                continue
            for row, column in itertools.product(range(5), range(3)):
                if int(glyph[row]) >> (2 - column) & 1:
                    for across, down in itertools.product(range(_SCALE), repeat=2):
                        x, y = left + column * _SCALE + across, top + row * _SCALE + down
                        self.dot(x, y, colour)
            left += 4 * _SCALE
        return left

    def encoded(self) -> bytes:
        """The file."""
        raw = b"".join(b"\x00" + bytes(row) for row in self._rows)
        head = struct.pack(">IIBBBBB", self._width, self._height, 8, 2, 0, 0, 0)
        return (
            b"\x89PNG\r\n\x1a\n"
            + _chunk(b"IHDR", head)
            + _chunk(b"IDAT", zlib.compress(raw, 9))
            + _chunk(b"IEND", b"")
        )


def _width(words: str) -> int:
    return 4 * _SCALE * len(words)


def _rgb(colour: str) -> Colour:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
