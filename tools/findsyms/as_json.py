"""The JSON format, schema 1 (docs/findsyms.md lists the keys): counts are integers, names lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .diff import STATUSES, UNCOVERED

if TYPE_CHECKING:
    from .diff import Report, Row
    from .session import Outcome

SCHEMA = 1


def render(outcome: Outcome) -> str:
    """All libraries, all symbols, all refusals."""
    document = {
        "schema": SCHEMA,
        "status": int(outcome.status),
        "libraries": [_library(report) for report in outcome.reports],
        "symbols": [_symbol(r.subject.soname, row) for r in outcome.reports for row in r.rows],
        "errors": [
            {"library": e.library, "what": e.what, "why": e.why, "fix": e.fix}
            for e in outcome.refusals
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _library(report: Report) -> dict[str, Any]:
    subject, functions = report.subject, report.functions
    covered = [row for row in functions if row.status != UNCOVERED]
    return {
        "soname": subject.soname,
        "asked": subject.asked,
        "path": subject.path,
        "driver": subject.driver or None,
        "arch": subject.machine,
        "build_id": subject.build_id or None,
        "functions": len(functions),
        "data": len(report.data),
        "covered": len(covered),
        "overridden": len(report.with_status("overridden")),
        "statuses": {status: len(report.with_status(status)) for status in STATUSES},
        "hooked": report.hooked or None,
        "baseline": report.baseline,
        "new": [row.name for row in report.new],
        "removed": list(report.removed),
        "holes": [row.name for row in report.holes],
        "values": [
            {
                "name": value.name,
                "value": value.value,
                "headers": value.headers,
                "reaches": value.reaches or None,
                "judged": value.judged or None,
            }
            for value in report.values
        ],
        "self_calls": [
            {"name": call.name, "through": call.through, "overridden": call.overridden}
            for call in report.self_calls
        ]
        if subject.self_calls_known
        else None,
    }


def _symbol(soname: str, row: Row) -> dict[str, Any]:
    return {
        "library": soname,
        "name": row.name,
        "type": "data" if row.is_data else "function",
        "status": row.status,
        "reason": row.status_reason or None,
        "kind": row.kind,
        "kind_reason": row.kind_reason,
        "prototype": row.prototype or None,
        "header": row.header or None,
        "first_driver": row.first_driver or None,
        "new": row.is_new,
        "hole": row.hole or None,
    }
