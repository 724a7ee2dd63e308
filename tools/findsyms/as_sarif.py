"""The SARIF 2.1.0 format: findings for code-scanning services."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .diff import UNCOVERED
from .errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .diff import Report
    from .session import Outcome

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_RULES = {
    "enforced-not-handled": ("error", "An enforced function is neither overridden nor excused."),
    "value-not-judged": ("error", "A value reaches an enforced function, and nobody judged it."),
    "not-covered": ("warning", "The driver exports a name that the built library does not."),
    "new-symbol": ("note", "The driver exports a name that the baseline lacks."),
    "removed-symbol": ("warning", "The driver no longer exports a name of the baseline."),
    "self-call-overridden": ("note", "The driver enters this hook itself, through its own PLT."),
}


def render(outcome: Outcome) -> str:
    """One run; refused libraries are notifications of its invocation."""
    rules = [
        {
            "id": rule,
            "shortDescription": {"text": text},
            "defaultConfiguration": {"level": level},
        }
        for rule, (level, text) in _RULES.items()
    ]
    refused = [
        {"level": "error", "message": {"text": f"{e.what}: {e.why}. {e.fix}"}}
        for e in outcome.refusals
    ]
    run = {
        "tool": {"driver": {"name": "findsyms", "rules": rules}},
        "invocations": [
            {
                "executionSuccessful": not outcome.status & (Exit.ERROR | Exit.USAGE),
                "exitCode": int(outcome.status),
                "toolExecutionNotifications": refused,
            }
        ],
        "results": [result for report in outcome.reports for result in _results(report)],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _results(report: Report) -> Iterator[dict[str, Any]]:
    for row in report.holes:
        yield _result(report, "enforced-not-handled", row.name, f"{row.name}: {row.hole}")
    for value in report.open_values:
        text = f"{value.name} = {value.value} came with headers {value.headers}"
        yield _result(report, "value-not-judged", value.name, text)
    for row in report.with_status(UNCOVERED):
        yield _result(report, "not-covered", row.name, f"{row.name}: {row.status_reason}")
    for row in report.new:
        yield _result(report, "new-symbol", row.name, f"{row.name} is not in {report.baseline}")
    for name in report.removed:
        yield _result(report, "removed-symbol", name, f"{name} is in {report.baseline} only")
    for call in report.self_calls:
        if call.overridden:
            text = f"{call.name} is called by {report.subject.soname} itself ({call.through})"
            yield _result(report, "self-call-overridden", call.name, text)


def _result(report: Report, rule: str, name: str, text: str) -> dict[str, Any]:
    subject = report.subject
    location = {
        "physicalLocation": {"artifactLocation": {"uri": Path(subject.path).absolute().as_uri()}},
        "logicalLocations": [{"name": name, "fullyQualifiedName": f"{subject.soname}:{name}"}],
    }
    return {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][0],
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"symbol/v1": f"{subject.soname}:{name}:{rule}"},
    }
