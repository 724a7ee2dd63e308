"""The table of `gpufence top` as text for a stream: its width and its colours.

Must not know what is in the table, nor the live screen. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import sys

from . import table
from .history import History
from .table import Choice, Line, Tone
from .watch import Look

_WIDTH = 110
_ANSI = {
    Tone.TITLE: "1",
    Tone.HEADING: "7",
    Tone.QUIET: "2",
    Tone.GOOD: "32",
    Tone.WARN: "33",
    Tone.BAD: "31",
}


def lines(look: Look, history: History, choice: Choice) -> list[str]:
    """The heading and everything below it, as wide as the terminal and coloured where it may be."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    colours = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    paint = _painted if colours else _bare
    heading = table.heading(look, history, width)
    return [paint(line) for line in (heading, *table.body(look, history, choice, width))]


def _bare(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def _painted(line: Line) -> str:
    return "".join(
        f"\x1b[{_ANSI[tone]}m{text}\x1b[0m" if tone in _ANSI else text for text, tone in line
    )


def speaks_unicode() -> bool:
    """Whether the terminal's encoding has the bars of a trend."""
    try:
        table.BARS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True
