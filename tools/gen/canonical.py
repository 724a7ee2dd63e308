"""The one spelling of a JSON value that the committed model uses.

Owns layout only: sorted keys, two-space indent, and a value on one line whenever it fits in
100 columns, so that a parameter is one line of a review diff. Must not know what it spells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = "Mapping[str, JsonValue] | Sequence[JsonValue] | str | int | None"

_COLUMNS = 100
_INDENT = "  "


def dumps_json(value: JsonValue) -> str:
    """Spell a JSON value canonically, with a trailing newline.

    Args:
        value: dicts with str keys, lists, str, int, bool, None. Lists keep their order.

    Returns:
        ASCII text; equal values give equal text on every machine and Python.
    """
    return _spell(value, "", 0) + "\n"


def _spell(value: JsonValue, indent: str, used: int) -> str:
    """Spell `value` at `indent`; `used` columns of its first line are taken already."""
    flat = json.dumps(value, sort_keys=True)
    if not isinstance(value, dict | list) or len(indent) + used + len(flat) < _COLUMNS:
        return flat
    deeper = indent + _INDENT
    if isinstance(value, list):
        items = [_spell(item, deeper, 0) for item in value]
        opening, closing = "[", "]"
    else:
        items = []
        for key in sorted(value):
            label = json.dumps(key) + ": "
            items.append(label + _spell(value[key], deeper, len(label)))
        opening, closing = "{", "}"
    body = ",\n".join(deeper + item for item in items)
    return f"{opening}\n{body}\n{indent}{closing}"
