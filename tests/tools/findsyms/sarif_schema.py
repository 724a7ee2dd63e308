"""The part of SARIF 2.1.0 that findsyms uses, as JSON Schema, tighter than the standard.

Written from the standard's text (OASIS SARIF 2.1.0, section 3): required properties, allowed
values, and no property that the standard does not have.
"""

from __future__ import annotations

from typing import Any


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT = {"type": "string", "minLength": 1}
_MESSAGE = _object({"text": _TEXT}, "text")
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
_RULE = _object(
    {
        "id": _TEXT,
        "shortDescription": _MESSAGE,
        "defaultConfiguration": _object({"level": _LEVEL}),
    },
    "id",
)
_LOCATION = _object(
    {
        "physicalLocation": _object(
            {"artifactLocation": _object({"uri": {"type": "string", "format": "uri-reference"}})}
        ),
        "logicalLocations": _list(_object({"name": _TEXT, "fullyQualifiedName": _TEXT})),
    }
)
_RESULT = _object(
    {
        "ruleId": _TEXT,
        "ruleIndex": {"type": "integer", "minimum": -1},
        "level": _LEVEL,
        "message": _MESSAGE,
        "locations": _list(_LOCATION),
        "partialFingerprints": {"type": "object", "additionalProperties": _TEXT},
    },
    "message",
)
_INVOCATION = _object(
    {
        "executionSuccessful": {"type": "boolean"},
        "exitCode": {"type": "integer"},
        "toolExecutionNotifications": _list(
            _object({"level": _LEVEL, "message": _MESSAGE}, "message")
        ),
    },
    "executionSuccessful",
)
_RUN = _object(
    {
        "tool": _object(
            {"driver": _object({"name": _TEXT, "rules": _list(_RULE)}, "name")}, "driver"
        ),
        "invocations": _list(_INVOCATION),
        "results": _list(_RESULT),
    },
    "tool",
)
SCHEMA = _object(
    {"$schema": {"type": "string"}, "version": {"const": "2.1.0"}, "runs": _list(_RUN)},
    "version",
    "runs",
)
