"""The list of all that limits are read from (lib/limits/options.txt), as plain tuples.

`gpufence run` reads it in front of every program, so this imports nothing that takes time to load.
"""

from __future__ import annotations

import functools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Name, what may follow it ("", "<i>", "<i>, <uuid>"), setting, what may be written.
Row = tuple[str, str, str, str]
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PLACES = (
    f"{_PACKAGE}/limits/options.txt",
    f"{_PACKAGE}/../../lib/limits/options.txt",
)


class Dialect:
    """A dialect's title, and its rows: names that mean the same, their row, what they mean."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[tuple[tuple[str, ...], tuple[str, str, str], str]] = []


@functools.cache
def table() -> tuple[dict[str, str], tuple[Dialect, ...]]:
    """Files by name, and every dialect."""
    files: dict[str, str] = {}
    dialects: list[Dialect] = []
    for line, meaning in _lines():
        parts = [part.strip() for part in line.split("|")]
        kind, _, name = parts[0].partition(" ")
        if kind == "file":
            files[name] = parts[1]
        elif kind == "dialect":
            dialects.append(Dialect(parts[1]))
        elif kind != "setting":
            names = tuple(each.strip() for each in parts[0].split(","))
            dialects[-1].rows.append((names, (parts[1], parts[2], parts[3]), meaning))
    return files, tuple(dialects)


def rows() -> Iterator[Row]:
    """Every variable, in its order."""
    for dialect in table()[1]:
        for names, row, _ in dialect.rows:
            for name in names:
                yield (name, *row)


def _lines() -> Iterator[tuple[str, str]]:
    """Each line of the list with the meaning below it; one that ends with a comma goes on."""
    path = next((place for place in _PLACES if os.path.exists(place)), _PLACES[0])
    with open(path, encoding="utf-8") as file:
        text = file.read().replace(",\n", ", ")
    kept = [line for line in text.split("\n") if line and not line.startswith("#")]
    for line, below in zip(kept, [*kept[1:], ""], strict=True):
        if not line.startswith(" "):
            yield line, below.strip() if below.startswith(" ") else ""
