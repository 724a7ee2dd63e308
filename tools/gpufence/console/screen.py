"""Colours and tables: `--color` and NO_COLOR mean the same in every command that prints either.

Without colour, and where rich is not installed, a table is plain padded text: nothing is cut or
wrapped, and `status` and `doctor` need no package. Must not know what is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

Cell = tuple[str, str]  # text and style, such as "bold red"; "" for none
# Wider than any table: rich would cut one that it takes for too wide.
_WIDTH = 1 << 14


def add_color(parser: argparse.ArgumentParser) -> None:
    """Declare --color."""
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )


def is_coloured(choice: str) -> bool:
    """Whether what goes to stdout has colours; findsyms decides the same."""
    if choice != "auto":
        return choice == "always"
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """The text in colour, for a stream that is to have some; as it is without rich."""
    try:
        from rich.color import ColorSystem
        from rich.style import Style
    except ModuleNotFoundError:
        return text
    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD) if style else text


def table(rows: Sequence[Sequence[Cell]], choice: str = "never") -> list[str]:
    """One line for each row, the first of which is the heading; all columns as wide as they need.

    Args:
        rows: of cells, all of one number.
        choice: what --color says.
    """
    if is_coloured(choice):
        try:
            return _rich_table(rows)
        except ModuleNotFoundError:
            pass
    widths = [max(len(row[column][0]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for (text, _), width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _rich_table(rows: Sequence[Sequence[Cell]]) -> list[str]:
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for cell in rows[0]:
        drawn.add_column(Text.assemble(cell), no_wrap=True)
    for row in rows[1:]:
        drawn.add_row(*(Text.assemble(cell) for cell in row))  # no style for the padding
    paper = io.StringIO()
    console = Console(
        file=paper, force_terminal=True, color_system="standard", no_color=False, width=_WIDTH
    )
    console.print(drawn)
    return [line.rstrip() for line in paper.getvalue().splitlines()]
