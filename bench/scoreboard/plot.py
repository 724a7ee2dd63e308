"""The scoreboard as a picture: a row for each figure, a dot for each way. SVG, without a library.

A figure that has a best is drawn as its part of that, any other as its ratio to the bare driver's:
both are 1 in the middle of a logarithmic scale, so a dot's place can be compared down the page.
Must not measure; every figure is the file's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

# Told apart by shape as well as by colour, which some readers do not see.
LOOKS = (("circle", "#777777"), ("square", "#0072b2"), ("up", "#d55e00"), ("down", "#009e73"))
LEAST, MOST = 0.01, 100.0
LEFT, WIDE, NUMBERS = 290, 470, 92
ROW, TOP, BOTTOM = 22, 62, 40
TEXT = 'font-family="sans-serif" font-size="13"'


def drawn(body: Mapping[str, Any]) -> str:
    """The SVG's text; the same figures make the same text."""
    ways = [way for way in body["ways"] if any(way in row["values"] for row in body["figures"])]
    lines, y, claim = [], TOP, ""
    for row in body["figures"]:
        if not row["values"]:
            continue
        if row["claim"] != claim:
            claim = row["claim"]
            lines.append(_text(10, y + 15, claim, 'font-weight="bold"'))
            y += ROW
        lines += _row(row, ways, y)
        y += ROW
    width, high = LEFT + WIDE + 20 + NUMBERS * len(ways), y + BOTTOM
    parts = [*_head(body, ways), *_scale(y), *lines]
    frame = f'viewBox="0 0 {width} {high}" width="{width}" height="{high}" {TEXT}'
    ground = f'<rect width="{width}" height="{high}" fill="white"/>'
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>', ground, *parts, "</svg>", ""]
    )


def place(row: Mapping[str, Any], way: str) -> float | None:
    """What is drawn of a figure: its part of the best, or of the bare driver's; None: nothing."""
    if way not in row["values"]:
        return None
    if row["best"] is None:
        part: float | None = row["of_bare"].get(way)
        return part
    return float(row["values"][way]) / float(row["best"])


# Implementation.


def _head(body: Mapping[str, Any], ways: list[str]) -> list[str]:
    driver = "the simulated driver" if body["simulated"] else "a real driver"
    lines = [_text(10, 20, f"Each claim, over {driver}", 'font-weight="bold" font-size="15"')]
    for number, way in enumerate(ways):
        x = LEFT + WIDE + 20 + NUMBERS * number
        lines += [_mark(number, x + 6, 36), _text(x + 18, 41, way)]
    return lines


def _scale(bottom: float) -> list[str]:
    lines = []
    for power in range(round(math.log10(LEAST)), round(math.log10(MOST)) + 1):
        x, one = _x(10.0**power), power == 0
        look = 'stroke="#333"' if one else 'stroke="#ddd"'
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" {look}/>')
        lines.append(_text(x, bottom + 16, f"{10.0**power:g}", 'text-anchor="middle"'))
    told = "1: the claim is kept; of a cost: as the bare driver"
    return [*lines, _text(_x(1.0), bottom + 33, told, 'text-anchor="middle" fill="#555"')]


def _row(row: Mapping[str, Any], ways: list[str], y: float) -> list[str]:
    lines = [_text(22, y + 15, row["name"])]
    for number, way in enumerate(ways):
        at = place(row, way)
        if at is None:
            continue
        lines.append(_mark(number, _x(at), y + 10))
        shown = f"{at:.3g}" if row["best"] is not None else f"x {at:.3g}"
        lines.append(_text(LEFT + WIDE + 20 + NUMBERS * number, y + 15, shown))
    return lines


def _x(value: float) -> float:
    """Where a value is on the scale; what is beyond its ends is at them."""
    bounded = min(max(value, LEAST), MOST)
    return LEFT + WIDE * math.log(bounded / LEAST) / math.log(MOST / LEAST)


def _mark(number: int, x: float, y: float) -> str:
    shape, colour = LOOKS[number % len(LOOKS)]
    if shape == "circle":
        ring = f'fill="none" stroke="{colour}" stroke-width="2"'
        return f'<circle cx="{x:.1f}" cy="{y}" r="6" {ring}/>'
    if shape == "square":
        return f'<rect x="{x - 4:.1f}" y="{y - 4}" width="8" height="8" fill="{colour}"/>'
    tip = -6 if shape == "up" else 6
    corners = f"{x - 6:.1f},{y - tip} {x + 6:.1f},{y - tip} {x:.1f},{y + tip}"
    return f'<polygon points="{corners}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {more}>{escape(words)}</text>'
