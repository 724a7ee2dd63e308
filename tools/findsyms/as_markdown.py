"""The Markdown format: for the description of a pull request that adopts a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .diff import UNCOVERED
from .words import KIND_WORDS, STATUS_WORDS, hole_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .diff import Report, Row
    from .session import Outcome

_SUMMARY = (
    "library",
    "driver",
    "arch",
    "functions",
    "covered",
    "overridden",
    "data",
    "new",
    "gone",
    "holes",
)


def render(outcome: Outcome) -> str:
    """A summary table, then what a reviewer must look at, long lists folded."""
    lines = ["# findsyms", ""]
    lines += _table(_SUMMARY, [_summary(report) for report in outcome.reports])
    for report in outcome.reports:
        lines += _library(report)
    if outcome.refusals:
        lines += ["", "## Refused", ""]
        lines += [f"* {_escape(f'{e.what}: {e.why}. {e.fix}')}" for e in outcome.refusals]
    return "\n".join(lines) + "\n"


def _summary(report: Report) -> list[str]:
    subject, functions = report.subject, report.functions
    open_count = sum(row.status == UNCOVERED for row in functions)
    numbers = [len(functions), len(functions) - open_count, len(report.with_status("overridden"))]
    numbers += [len(report.data), len(report.new), len(report.removed), len(report.holes)]
    words = [f"`{subject.soname}`", subject.driver or "unknown", subject.machine]
    return words + [str(number) for number in numbers]


def _library(report: Report) -> list[str]:
    lines = ["", f"## {report.subject.soname} {report.subject.driver}".rstrip(), ""]
    lines.append(f"Compared with {_code(report.hooked) if report.hooked else 'the API model'}")
    lines[-1] += f" and {report.baseline}."
    lines += _symbols("New", report.new)
    if report.removed:
        lines += _folded("Gone", [f"* `{name}`" for name in report.removed])
    lines += _symbols("Not covered", report.with_status(UNCOVERED))
    groups = hole_groups(report.holes)
    if groups:
        rows = [
            [_code(group.base), group.kind, ", ".join(map(_code, group.names)), group.why]
            for group in groups
        ]
        table = _table(("base", "kind", "open", "why it matters"), rows)
        lines += _folded(f"Holes ({len(report.holes)})", table)
    if report.open_values:
        columns = ("value", "is", "headers", "reaches")
        rows = [[_code(v.name), _code(v.value), v.headers, v.reaches] for v in report.open_values]
        lines += _folded(f"Values nobody judged ({len(rows)})", _table(columns, rows))
    overridden = [call for call in report.self_calls if call.overridden]
    if overridden:
        names = [f"* {_code(call.name)} ({call.through})" for call in overridden]
        lines += _folded("Overridden functions that the driver calls itself", names)
    return lines


def _symbols(title: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    cells = [
        [
            _code(row.name),
            STATUS_WORDS[row.status],
            "data" if row.is_data else KIND_WORDS[row.kind],
            row.kind_reason,
            _code(row.prototype) if row.prototype else row.status_reason,
        ]
        for row in rows
    ]
    columns = ("symbol", "status", "kind", "because", "prototype")
    return _folded(f"{title} ({len(rows)})", _table(columns, cells))


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += [f"| {' | '.join(map(_escape, row))} |" for row in rows]
    return lines


def _code(text: str) -> str:
    return f"`{text}`"


def _escape(text: str) -> str:
    safe = text.replace("|", "\\|")  # GitHub splits cells even inside code
    return safe if "`" in text else safe.replace("<", "&lt;")
