"""The part of YAML that CDI files are written in, so that no package is needed for them.

Block maps and lists, plain and quoted scalars, JSON wherever a value may stand, comments. All else
(anchors, tags, folded text, several documents) is refused with its line, never guessed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_PLAIN_KEY = re.compile(r"[A-Za-z][\w./-]*")
_PLAIN_TEXT = re.compile(r"[A-Za-z/][\w./=%+-]*")
# Words that some readers take for truth values.
_ODD_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_WORDS = {"true": True, "false": False, "null": None, "~": None}
_KEY = re.compile(
    r"""("(?:[^"\\]|\\.)*"\s*|'(?:[^']|'')*'\s*|"""
    r"""[^\s"'#\[\]{},&*!|>%@`-](?:[^#:]|:(?!\s|$))*):(?:\s|$)"""
)
# Nested deeper than this is no CDI file, and Python's own stack has an end.
_DEEPEST = 50


class YamlError(ValueError):
    """Text outside of the part of YAML that is read; the message names the line."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str


def dump(document: object) -> str:
    """A document of maps with text keys, lists, texts, numbers and truth values as block YAML."""
    return "---\n" + "\n".join(_dumped(document, "")) + "\n"


def load(text: str) -> object:
    """Read one document.

    Raises:
        YamlError: what is no YAML of this part.
    """
    lines = list(_lines(text))
    if not lines:
        return None
    if lines[0].text[0] in "{[":
        return _json("\n".join(" " * line.indent + line.text for line in lines), lines[0].number)
    reader = _Reader(lines)
    document = reader.block(lines[0].indent, 0)
    if reader.rest():
        raise YamlError(f"line {reader.rest()[0].number} is indented like nothing above it")
    return document


def _dumped(value: object, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for name, inner in value.items():
            key = name if _PLAIN_KEY.fullmatch(name) and _is_plain(name) else _quoted(name)
            below = _dumped(inner, indent + "  ")
            if isinstance(inner, dict | list) and inner:
                lines += [f"{indent}{key}:", *below]
            else:
                lines.append(f"{indent}{key}: {below[0].strip()}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for inner in value:
            first, *more = _dumped(inner, indent + "  ")
            lines += [f"{indent}- {first.strip()}", *more]
        return lines
    if not isinstance(value, str):
        return [indent + json.dumps(value)]
    plain = _PLAIN_TEXT.fullmatch(value) and _is_plain(value)
    return [indent + (value if plain else _quoted(value))]


def _quoted(text: str) -> str:
    """As JSON, but for characters that JSON would write as a pair of halves: YAML knows no such."""
    return '"' + "".join(c if c > "\uffff" else json.dumps(c)[1:-1] for c in text) + '"'


def _is_plain(text: str) -> bool:
    return text.lower() not in _ODD_WORDS


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#") or (stripped == "---" and not found):
            continue
        if stripped in ("---", "...") and not line.startswith(" "):
            raise YamlError(f"line {number} begins a second document")
        indent = len(line) - len(line.lstrip(" "))
        if line[indent] == "\t":
            raise YamlError(f"line {number} is indented by a tab")
        found.append(_Line(number, indent, stripped))
    return found


class _Reader:
    """Takes lines from the front, one block after the other."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._next = 0

    def rest(self) -> list[_Line]:
        return self._lines[self._next :]

    def _peek(self, indent: int) -> _Line | None:
        """The next line if it belongs to a block of this indent."""
        if self._next == len(self._lines):
            return None
        line = self._lines[self._next]
        if line.indent > indent:
            raise YamlError(f"line {line.number} is indented like nothing above it")
        return line if line.indent == indent else None

    def block(self, indent: int, depth: int) -> object:
        """The map, list or scalar whose lines begin here."""
        line = self._lines[self._next]
        if depth > _DEEPEST:
            raise YamlError(f"line {line.number} is nested too deep")
        if line.text == "-" or line.text.startswith("- "):
            return self._list(indent, depth)
        if _KEY.match(line.text):
            return self._map(indent, depth)
        self._next += 1
        return _scalar(line.text, line.number)

    def _list(self, indent: int, depth: int) -> list[object]:
        items: list[object] = []
        while (line := self._peek(indent)) and (line.text == "-" or line.text.startswith("- ")):
            rest = line.text[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self._next += 1
                items.append(self._below(indent, depth))
                continue
            # "- key: value" opens a map whose further keys stand below the first.
            inner = _Line(line.number, line.indent + len(line.text) - len(rest), rest)
            self._lines[self._next] = inner
            items.append(self.block(inner.indent, depth + 1))
        return items

    def _map(self, indent: int, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while line := self._peek(indent):
            match = _KEY.match(line.text)
            if match is None:
                if line.text.startswith("-"):
                    break
                raise YamlError(f"line {line.number} is no 'key: value'")
            key = _scalar(match[1].rstrip(), line.number, plain_is_text=True)
            if key in found:
                raise YamlError(f"line {line.number} names '{key}' again")
            value = line.text[match.end() :].strip()
            self._next += 1
            if value and not value.startswith("#"):
                found[str(key)] = _scalar(value, line.number)
            else:
                found[str(key)] = self._below(indent, depth, lists_may_align=True)
        return found

    def _below(self, indent: int, depth: int, lists_may_align: bool = False) -> object:
        """What is nested under a line that ended in ':' or '-'; None if nothing is."""
        if self._next == len(self._lines):
            return None
        line = self._lines[self._next]
        aligned = lists_may_align and line.indent == indent and line.text[:2] in ("-", "- ")
        if line.indent > indent or aligned:
            return self.block(line.indent, depth + 1)
        return None


def _scalar(text: str, number: int, plain_is_text: bool = False) -> object:
    if text[0] in '"{[':
        return _json(text, number)
    if text[0] == "'":
        match = re.fullmatch(r"'((?:[^']|'')*)'(?:\s+#.*)?", text)
        if match is None:
            raise YamlError(f"line {number} has a quote without its end")
        return match[1].replace("''", "'")
    if text[0] in "&*!|>%@`" or text.startswith("? "):
        raise YamlError(f"line {number} uses '{text[0]}', which is not read here")
    plain = re.split(r"\s#", text, maxsplit=1)[0].rstrip()
    if plain_is_text:
        return plain
    if re.search(r":(\s|$)", plain):
        raise YamlError(f"line {number} has a second ': '")
    if _INTEGER.fullmatch(plain) and len(plain) < 20:
        return int(plain)
    return _WORDS.get(plain, plain)


def _json(text: str, number: int) -> object:
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        raise YamlError(f"the value in line {number} is no JSON") from None
    if text[end:].strip() and not re.match(r"\s+#", text[end:]):
        raise YamlError(f"line {number} goes on behind its value")
    return value
