"""Which functions hand-written hooks define, read from their source text.

Owns the recognition of a definition in `lib/src/hooks/**/*.cpp` and what `passthrough.txt` is
for. Must not know what a hook does. The binary truth is `findsyms check`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from . import rules

PASSTHROUGH = "passthrough.txt"
_COMMENT_OR_TEXT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """A definition: file inside the hooks folder, line from 1."""

    file: str
    line: int


def find_definition(folder: Path, name: str) -> Place | None:
    """Where `name` is defined; None when no file of the folder does, or there is no folder."""
    for path in sorted(folder.rglob("*.cpp")):
        line = definition_line(path.read_text(encoding="utf-8", errors="replace"), name)
        if line:
            return Place(path.relative_to(folder).as_posix(), line)
    return None


def definition_line(text: str, name: str) -> int:
    """The line of the definition of the global function `name`, or 0.

    A definition is `type name(...) {`; a call, a declaration and `real::name(...)` are none.
    """
    code = _COMMENT_OR_TEXT.sub(_blank, text)
    for match in re.finditer(rf"(?<![\w:.>]){re.escape(name)}\s*\(", code):
        before = code[: match.start()].rstrip()
        if before.endswith(("return", "=", "(", ",", "!", "&", "|", "?", ";", "{", "}")):
            continue
        if code[_closing(code, match.end()) :].lstrip().startswith("{"):
            return code.count("\n", 0, match.start()) + 1
    return 0


def passthrough_reason(api_dir: Path, name: str) -> str:
    """Why an enforced symbol is passed through on purpose; empty when it is not listed.

    Raises:
        HookgenError: exit 1; the table is damaged.
    """
    path = api_dir / PASSTHROUGH
    if not path.is_file():
        return ""
    rule = rules.of_family(name, rules.read(path.read_text(encoding="utf-8"), PASSTHROUGH))
    return rule.reason if rule else ""


# Implementation.


def _blank(match: re.Match[str]) -> str:
    """Line breaks stay, so that positions keep their line; `extern "C"` keeps its shape."""
    return re.sub(r"[^\n]", " ", match.group())


def _closing(code: str, start: int) -> int:
    """The position behind the parenthesis that closes the one before `start`."""
    depth = 1
    for position in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[position], 0)
        if depth == 0:
            return position + 1
    return len(code)
