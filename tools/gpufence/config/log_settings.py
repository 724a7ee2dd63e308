"""How much is logged and where to, as each dialect says it. Nothing here is a reason to refuse.

Levels are mapped to ours: off < error < warn < info < debug < trace. The same as
lib/src/config/log_settings.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from . import sizes, sources
from .options import Dialect, Setting
from .reading import Reading, c_text
from .sources import Statement, Statements


@dataclass(frozen=True, slots=True)
class LogLevel:
    """What the sources ask for."""

    name: str  # "" when nobody says anything readable
    unreadable: str  # a source whose level nobody understands; "" when there is none


_PATH_BYTES = 256
_LEVELS = ("off", "error", "warn", "info", "debug", "trace")
_WORDS = {
    "none": "off",
    "err": "error",
    "critical": "error",
    "crit": "error",
    "fatal": "error",
    "warning": "warn",
} | {level: level for level in _LEVELS}


def read(reading: Reading) -> None:
    """Level and sink."""
    level = asked_for(reading.statements)
    reading.claims.log_level = level.name or "warn"
    if level.unreadable:
        reading.claims.note(f"{level.unreadable} is no log level")
    _read_sink(reading)


def _read_sink(reading: Reading) -> None:
    claims = reading.claims
    path = reading.text(Dialect.GPUFENCE, Setting.LOG_FILE) or _vcuda_sink(reading)
    file, daily = "", False
    if not path and not _silenced(reading.statements):
        path = reading.text(Dialect.VGPU_RS, Setting.LOG_FILE)
        daily = bool(path)
        # A folder gets a file of vgpu.rs's name.
        if daily and Path(reading.system.root + c_text(path)).is_dir():
            file = "/tf.log"
    if len(path) + 8 > _PATH_BYTES:
        claims.note("the log file's path is too long: lines go to stderr")
        path, file, daily = "", "", False
    claims.log_file, claims.log_is_daily = c_text(path + file), daily


def _vcuda_sink(reading: Reading) -> str:
    """vcuda-hook's sink as a path; empty: stderr, which stands for stdout, too."""
    sink = reading.text(Dialect.VCUDA, Setting.LOG_SINK).strip(" ")
    word = sizes.lower(sink)
    if word in ("null", "none"):
        return "/dev/null"
    if word.startswith("file:"):
        return sink[len("file:") :]
    if word != "file":
        return ""
    return reading.text(Dialect.VCUDA, Setting.LOG_FILE) or "vcuda-hook.log"


def _silenced(statements: Statements) -> bool:
    switch = statements.text_of(Dialect.VGPU_RS, Setting.LOG_SWITCH)
    return sizes.lower(switch) in ("off", "false", "0")


def asked_for(statements: Statements) -> LogLevel:
    """Our own level, else the most verbose that a dialect asks for."""
    silenced = _silenced(statements)
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
