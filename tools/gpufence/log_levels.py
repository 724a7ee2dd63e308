"""The log level of every dialect, mapped to ours: off < error < warn < info < debug < trace.

The same as ApplyLogLevel in lib/src/config/switches.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from . import sources
from .options import Dialect, Setting
from .sources import Statement, Statements


@dataclass(frozen=True, slots=True)
class LogLevel:
    """What the sources ask for."""

    name: str  # "" when nobody says anything readable
    unreadable: str  # a source whose level nobody understands; "" when there is none


_LEVELS = ("off", "error", "warn", "info", "debug", "trace")
_WORDS = {
    "none": "off",
    "err": "error",
    "critical": "error",
    "crit": "error",
    "fatal": "error",
    "warning": "warn",
} | {level: level for level in _LEVELS}


def asked_for(statements: Statements) -> LogLevel:
    """Our own level, else the most verbose that a dialect asks for."""
    switch = statements.text_of(Dialect.VGPU_RS, Setting.LOG_SWITCH)
    silenced = switch.lower() in ("off", "false", "0") if switch.isascii() else False
    levels: list[str] = []
    unreadable = ""
    for each in statements.all:
        if each.option.setting is not Setting.LOG_LEVEL or not each.text:
            continue
        level = _level_of(each)
        if level is None:
            unreadable = unreadable or statements.describe(each)
        elif each.option.dialect is Dialect.GPUFENCE:
            return LogLevel(level, unreadable)
        elif not (silenced and each.option.dialect is Dialect.VGPU_RS):
            levels.append(level)
    if not levels and not silenced:
        return LogLevel("", unreadable)
    return LogLevel(max(levels, key=_LEVELS.index, default="off"), unreadable)


def _level_of(statement: Statement) -> str | None:
    dialect, text = statement.option.dialect, statement.text
    if dialect is Dialect.HAMI:
        return _numbered_level(text, "warn")
    if dialect is Dialect.VGPU_MANAGER:
        return _numbered_level(text, "error")
    if dialect is not Dialect.VGPU_RS:
        return _worded_level(text)
    directives = [_worded_level(part.rpartition("=")[2]) for part in sources.split_list(text, ",")]
    known = [level for level in directives if level is not None]
    if not known or len(known) < len(directives):
        return None
    return max(known, key=_LEVELS.index)


def _numbered_level(text: str, one: str) -> str | None:
    match = re.fullmatch(r"(-?)([0-9]{1,9})", text.strip(" "))
    if match is None:
        return None
    number = int(match[2])
    if match[1]:
        return "warn"
    return ("error", one, "warn", "info", "debug", "trace")[min(number, 5)]


def _worded_level(text: str) -> str | None:
    word = text.strip(" ")
    return _WORDS.get(word.lower()) if word.isascii() else None
