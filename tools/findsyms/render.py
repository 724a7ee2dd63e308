"""The formats of a report: each takes an `Outcome` and returns text, none decides anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import as_json, as_markdown, as_sarif, as_text

if TYPE_CHECKING:
    from .as_text import Style
    from .session import Outcome

EXTENSIONS = {".json": "json", ".md": "markdown", ".sarif": "sarif", ".txt": "text"}


def render(outcome: Outcome, form: str, style: Style) -> str:
    """Spell an outcome as text, json, markdown or sarif; `style` matters to text only."""
    if form == "json":
        return as_json.render(outcome)
    if form == "markdown":
        return as_markdown.render(outcome)
    if form == "sarif":
        return as_sarif.render(outcome)
    return as_text.render(outcome, style)
