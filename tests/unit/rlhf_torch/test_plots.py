"""Plots without a plotting library: they hold every point, escape every name, and decode as PNG."""

import math
import struct
import zlib
from xml.etree import ElementTree

from rlhf import plot_png, plots

CURVES = {"aligned": [(0, 0.5), (1, 0.7), (2, 1.0)], "shifted": [(0, 0.5), (1, 0.45), (2, 0.5)]}


def decoded(content: bytes) -> tuple[int, int, list[bytes]]:
    """(width, height, rows of RGB) of a PNG file, with its checksums verified."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    place, chunks = 8, {}
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (check,) = struct.unpack_from(">I", content, place + 8 + length)
        assert check == zlib.crc32(kind + body)
        chunks[kind] = body
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour) == (8, 2)
    raw = zlib.decompress(chunks[b"IDAT"])
    step = 1 + 3 * width
    rows = [raw[start : start + step] for start in range(0, len(raw), step)]
    assert len(rows) == height
    assert all(row[0] == 0 and len(row) == step for row in rows)
    return width, height, [row[1:] for row in rows]


def colours_in(rows: list[bytes]) -> set[bytes]:
    return {row[place : place + 3] for row in rows for place in range(0, len(row), 3)}


def test_a_png_holds_each_curve_in_its_colour():
    width, height, rows = decoded(plot_png.png(CURVES, 200, 100))
    assert (width, height) == (200, 100)
    wanted = {bytes.fromhex(colour[1:]) for colour in plots.COLOURS[:2]}
    assert wanted <= colours_in(rows)
    assert bytes.fromhex(plots.COLOURS[2][1:]) not in colours_in(rows)


def test_a_rising_curve_ends_higher_than_it_begins():
    _, _, rows = decoded(plot_png.png({"": [(0, 0.0), (1, 1.0)]}, 200, 140))
    colour = bytes.fromhex(plots.COLOURS[0][1:])
    marked = [
        (place // 3, number)
        for number, row in enumerate(rows)
        for place in range(0, len(row), 3)
        if row[place : place + 3] == colour
    ]
    first, last = min(marked), max(marked)
    assert first[1] > last[1] + 40


def test_nothing_to_draw_is_a_frame_everywhere():
    for curves in ({}, {"none": []}, {"nan": [(0, math.nan), (1, math.inf)]}):
        decoded(plot_png.png(curves, 60, 40))
        assert "no values" in plots.svg("empty", curves)
        assert plots.terminal(curves) == ["(no values)"]


def test_one_point_and_equal_points_have_a_place():
    for curve in ([(3, 1.0)], [(0, 2.0), (1, 2.0)], [(0, 0.0)]):
        decoded(plot_png.png({"flat": curve}, 60, 40))
        assert "polyline" in plots.svg("flat", {"flat": curve})
        assert any("f" in line for line in plots.terminal({"flat": curve})[:-1])


def test_an_svg_is_well_formed_whatever_the_names_are():
    text = plots.svg('<b>"&', {"<script>": [(0, 1), (1, 2)], "b&": [(0, 2), (1, 1)]})
    root = ElementTree.fromstring(text)
    assert root.attrib["aria-label"] == '<b>"&'
    assert len(root.findall("polyline")) == 2
    assert "<script>" not in text


def test_points_that_are_not_numbers_are_left_out_of_a_curve():
    text = plots.svg("gap", {"gap": [(0, 1.0), (1, math.nan), (2, 3.0)]})
    (line,) = ElementTree.fromstring(text).findall("polyline")
    assert len(line.attrib["points"].split()) == 2


def test_the_terminal_shows_each_curve_by_a_letter_of_its_own():
    lines = plots.terminal({"same": [(0, 0), (1, 1)], "sand": [(0, 1), (1, 0)]}, 20, 6)
    assert lines[-1].strip() == "s = same, a = sand"
    assert any("s" in line for line in lines[:6])
    assert any("a" in line for line in lines[:6])
    assert lines[0].rstrip().endswith("s")


def test_a_png_names_its_curves_in_their_colour_above_the_plot():
    _, _, rows = decoded(plot_png.png(CURVES, 300, 150))
    for number, colour in enumerate(plots.COLOURS[:2]):
        wanted = bytes.fromhex(colour[1:])
        above = [row for row in rows[:35] if wanted in {row[n : n + 3] for n in range(0, 900, 3)}]
        assert len(above) == 10, number
