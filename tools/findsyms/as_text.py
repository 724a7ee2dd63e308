"""The text format: a table for people on a terminal, the same words without colour in a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .diff import DRIVER, OVERRIDDEN, PASSTHROUGH, UNCOVERED, UNTYPED
from .words import KIND_WORDS, STATUS_WORDS, coverage, hole_groups, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .diff import Report, Row
    from .session import Outcome

_SHOWN = 12  # rows of a long list before --verbose
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_STATUS_COLOURS = {
    OVERRIDDEN: _GREEN,
    PASSTHROUGH: _CYAN,
    UNTYPED: _YELLOW,
    DRIVER: _DIM,
    UNCOVERED: _RED,
}


@dataclass(frozen=True, slots=True)
class Style:
    """How text is dressed: colour, columns (0 = never cut a line), and whether all is told."""

    colour: bool = False
    columns: int = 0
    verbose: bool = False

    def paint(self, text: str, code: str) -> str:
        """Wrap text in a colour, if colours are on."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    colour: str = ""


def render(outcome: Outcome, style: Style) -> str:
    """One block per library; refusals are not repeated here, they went to stderr."""
    blocks = [_library(report, style) for report in outcome.reports]
    return "\n".join(blocks)


def _library(report: Report, style: Style) -> str:
    lines = _head(report, style)
    lines += _section("New", report.new, style)
    lines += _removed(report, style)
    lines += _section("Not covered", report.with_status(UNCOVERED), style)
    lines += _holes(report, style)
    lines += _values(report, style)
    lines += _self_calls(report, style)
    if style.verbose:
        lines += _section("Symbols", report.rows, style)
    return "\n".join(lines) + "\n"


def _head(report: Report, style: Style) -> list[str]:
    subject = report.subject
    title = f"{subject.soname}  driver {subject.driver or 'unknown'}  {subject.machine}"
    data = f", {plural(len(report.data), 'data symbol')}" if report.data else ""
    against = report.hooked or "the API model (no built library: overrides and holes unknown)"
    open_data = sum(row.status == UNCOVERED for row in report.data)
    facts = [
        ("path", subject.path),
        ("build id", subject.build_id),
        ("exports", plural(len(report.functions), "function") + data),
        ("covered", coverage(report) + (f"; {open_data} data open" if open_data else "")),
        ("against", against),
        ("since", f"{report.baseline}: {len(report.new)} new, {len(report.removed)} gone"),
    ]
    shown = [f"  {style.paint(f'{key:<9}', _DIM)} {value}" for key, value in facts if value]
    return [style.paint(title, _BOLD), *shown]


def _section(title: str, rows: Sequence[Row], style: Style) -> list[str]:
    if not rows:
        return []
    table = [
        (
            _Cell(row.name),
            _Cell(STATUS_WORDS[row.status], _STATUS_COLOURS[row.status]),
            _Cell("data" if row.is_data else KIND_WORDS[row.kind]),
            _Cell(row.header or "-"),
            _Cell(row.first_driver or "-"),
            _Cell(_detail(row, style.verbose)),
        )
        for row in rows
    ]
    columns = ("symbol", "status", "kind", "header", "driver", "prototype or reason")
    return ["", _title(title, len(rows), style), *_table(columns, table, style)]


def _detail(row: Row, verbose: bool) -> str:
    text = row.prototype or row.status_reason
    if not verbose:
        return text
    reasons = [f"kind: {row.kind_reason}", row.prototype and row.status_reason, row.hole]
    return "; ".join([text, *(reason for reason in reasons if reason)])


def _removed(report: Report, style: Style) -> list[str]:
    if not report.removed:
        return []
    names = [f"  {name}" for name in report.removed]
    return ["", _title("Gone", len(names), style), *names]


def _holes(report: Report, style: Style) -> list[str]:
    groups = hole_groups(report.holes)
    if not groups:
        return []
    families = "family" if len(groups) == 1 else "families"
    title = f"Holes ({len(report.holes)} in {len(groups)} {families})"
    lines = ["", style.paint(title, _BOLD), f"  {_tally(group.kind for group in groups)}"]
    if style.verbose:
        named = [(name, group, "1") for group in groups for name in group.names]
    else:
        named = [(g.base, g, str(len(g.names))) for g in groups[:_SHOWN]]
    rows = [(_Cell(n), _Cell(g.kind), _Cell(count), _Cell(g.why, _RED)) for n, g, count in named]
    lines += _table(("base", "kind", "open", "why it matters"), rows, style)
    if len(rows) < len(groups):
        lines.append(style.paint(f"  ... {len(groups) - len(rows)} more; see --verbose", _DIM))
    return lines


def _values(report: Report, style: Style) -> list[str]:
    """Values that nobody judged; with --verbose all that came."""
    shown = report.values if style.verbose else report.open_values
    if not shown:
        return []
    rows = [
        (
            _Cell(value.name),
            _Cell(value.value),
            _Cell(value.headers),
            _Cell(value.reaches or "-"),
            _Cell(value.judged or "nobody judged it", "" if value.judged else _RED),
        )
        for value in shown
    ]
    title = "Values" if style.verbose else "Values nobody judged"
    columns = ("value", "is", "headers", "reaches", "judged")
    return ["", _title(title, len(rows), style), *_table(columns, rows, style)]


def _tally(words: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))


def _self_calls(report: Report, style: Style) -> list[str]:
    calls = report.self_calls
    if not calls:
        return []
    plt = sum(call.through == "plt" for call in calls)
    ours = [call for call in calls if call.overridden]
    lines = [
        "",
        style.paint(f"Self-calls ({plt} through the PLT, {len(calls) - plt} through data)", _BOLD),
        f"  {len(ours)} of them overridden: such a hook is entered from inside the driver, too",
    ]
    shown = calls if style.verbose else ours
    for call in shown:
        mark = style.paint("overridden", _YELLOW) if call.overridden else ""
        lines.append(f"  {call.name}  {call.through}  {mark}".rstrip())
    return lines


def _title(text: str, count: int, style: Style) -> str:
    return style.paint(f"{text} ({count})", _BOLD)


def _table(columns: Sequence[str], rows: Sequence[Sequence[_Cell]], style: Style) -> list[str]:
    """Align all columns but the last, which is cut where a terminal ends."""
    widths = [
        max([len(column), *(len(row[index].text) for row in rows)])
        for index, column in enumerate(columns)
    ]
    lines = [_line([_Cell(column, _DIM) for column in columns], widths, style)]
    lines += [_line(row, widths, style) for row in rows]
    return lines


def _line(cells: Sequence[_Cell], widths: Sequence[int], style: Style) -> str:
    used = 2 + sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(style.columns - used, 12) if style.columns else 0
    parts = []
    for index, cell in enumerate(cells):
        last = index == len(cells) - 1
        text = cell.text if last else cell.text.ljust(widths[index])
        if last and room and len(text) > room:
            text = text[: room - 1] + "…"
        parts.append(style.paint(text, cell.colour) if cell.colour else text)
    return ("  " + "  ".join(parts)).rstrip()
