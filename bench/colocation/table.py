"""A session's figures for people: a row for each scene and way. Must not measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .judge import ALONE, Figures, Judge, Results, Verdict, number
from .scenes import Scene, Tenant, find

COLUMNS: tuple[tuple[str, str], ...] = (
    ("rate", "rate"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("share", "share %"),
    ("of_alone", "% of alone"),
    ("of_bare", "% of bare"),
    ("of_mps", "% of mps"),
)
ERROR_END = 50  # characters of an error at either end


def scene_of(line: Mapping[str, Any]) -> Scene | None:
    """The scene that a line names; None for one that is no longer known."""
    name = str(line["scene"])
    if name.startswith(ALONE):
        return Scene(name, (Tenant(name.removeprefix(ALONE), 100),))
    try:
        return find([name])[0]
    except ValueError:
        return None


def short(value: float) -> str:
    """Three digits or so."""
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cell(figures: Sequence[Figures], name: str) -> str:
    """One figure of all tenants; empty when none has it."""
    values = [number(one, name) for one in figures]
    if all(math.isnan(value) for value in values):
        return ""
    return " + ".join(short(value) for value in values)


def ends(text: str) -> str:
    """Which program an error is of, and the end of what it said, where its reason is."""
    return text if len(text) <= 2 * ERROR_END else f"{text[:ERROR_END]} ... {text[-ERROR_END:]}"


def kept(verdicts: Sequence[Verdict]) -> str:
    """The column of promises."""
    if not verdicts:
        return ""
    if any(verdict.met is False for verdict in verdicts):
        return "BROKEN"
    return "unknown" if any(verdict.met is None for verdict in verdicts) else "kept"


def rows(body: Mapping[str, Any], judged: bool) -> list[list[str]]:
    """The table's cells, its head first."""
    judge = Judge(Results(body["lines"]))
    result = [["scene", "way", *(title for _, title in COLUMNS), *(["promises"] * judged)]]
    for line in body["lines"]:
        scene = scene_of(line)
        row = [str(line["scene"]), str(line["way"])]
        figures = None if scene is None else judge.figures(scene, str(line["way"]))
        if "error" in line or scene is None or figures is None:
            row += [ends(str(line.get("error", "unknown scene")))]
            result.append(row)
            continue
        row += [cell(figures, name) for name, _ in COLUMNS]
        if judged:
            row.append(kept(judge.verdicts(scene, str(line["way"]), str(line["kind"]))))
        result.append(row)
    return result


def table(body: Mapping[str, Any], judged: bool) -> str:
    """The rows in columns; an error takes the rest of its line."""
    cells = rows(body, judged)
    full = [row for row in cells if len(row) == len(cells[0])]
    wide = [max(len(row[place]) for row in full) for place in range(len(cells[0]))]
    for row in cells:
        wide[0], wide[1] = max(wide[0], len(row[0])), max(wide[1], len(row[1]))
    pad: Callable[[str, int], str] = str.ljust
    return "\n".join(
        "  ".join(pad(text, wide[place]) for place, text in enumerate(row)).rstrip()
        for row in cells
    )


def complaints(body: Mapping[str, Any]) -> list[str]:
    """Every promise that a session broke, on a line each."""
    return _told(body, lambda verdict: verdict.met is False)


def undecided(body: Mapping[str, Any]) -> list[str]:
    """Every promise about which what was measured does not decide, on a line each."""
    return _told(body, lambda verdict: verdict.met is None and verdict.time is not None)


def _told(body: Mapping[str, Any], which: Callable[[Verdict], bool]) -> list[str]:
    judge = Judge(Results(body["lines"]))
    found: list[str] = []
    for line in body["lines"]:
        scene = scene_of(line)
        if scene is None:
            continue
        verdicts = judge.verdicts(scene, str(line["way"]), str(line["kind"]))
        where = f"{line['scene']} | {line['way']}"
        found += [f"{where} | {one.told()}" for one in verdicts if which(one)]
    return found
