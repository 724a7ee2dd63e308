"""The table of `gpufence top` as text for a stream: its width and its colours.

Must not know what is in the table, nor the live screen.
"""

from __future__ import annotations

import shutil
import sys

from gpufence.console import screen

from . import table
from .history import History
from .table import Choice, Line, Tone
from .watch import Look

_WIDTH = 110
_STYLES = {
    Tone.TITLE: "bold",
    Tone.HEADING: "reverse",
    Tone.QUIET: "dim",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "red",
}


def lines(look: Look, history: History, choice: Choice, color: str = "auto") -> list[str]:
    """The heading and everything below it, as wide as the terminal and coloured where it may be."""
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    paint = _painted if screen.is_coloured(color) else _bare
    heading = table.heading(look, history, width)
    return [paint(line) for line in (heading, *table.body(look, history, choice, width))]


def _bare(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def _painted(line: Line) -> str:
    return "".join(screen.paint(text, _STYLES.get(tone, "")) for text, tone in line)


def speaks_unicode() -> bool:
    """Whether the terminal's encoding has the bars of a trend."""
    try:
        table.BARS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True
