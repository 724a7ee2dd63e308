"""Where limits are written: environment, process 1, HAMi's /overrideEnv, our config file.

Knows where names stand, not what they mean. The same steps as lib/src/config/statements.cpp.
"""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import own_names, sizes
from .options import Dialect, Keys, Option, Setting, find, find_in_file

CONFIG_PATH = "/etc/gpufence/gpufence.conf"
OVERRIDE_PATH = "/overrideEnv"
SMALL_FILE_BYTES = 64 << 10
_FIRST_PROCESS_BYTES = 1 << 20
_MOST = 1024
_BLANKS = " \t\r"


class Origin(enum.Enum):
    """Where a statement stands."""

    ENVIRONMENT = "environment"
    FIRST_PROCESS = "process 1"
    OVERRIDE = "/overrideEnv"
    CONFIG_FILE = "config file"


class Target(enum.IntEnum):
    """Which GPU is meant; the values are the library's, and a higher one is more special."""

    EVERY = 0
    ORDINAL = 1
    NVML_INDEX = 2
    UUID = 3


class ConfigError(Exception):
    """Sources that the library refuses, in its own words: "what why. fix", one line of ASCII."""

    def __init__(self, line: str) -> None:
        super().__init__("".join(c if " " <= c <= "~" else "?" for c in line))


@dataclass(frozen=True, slots=True)
class Statement:
    """One name with its text."""

    option: Option
    name: str
    text: str
    origin: Origin
    target: Target
    index: int
    uuid: bytes


@dataclass(frozen=True, slots=True)
class System:
    """What is read: a root folder ("" is the machine's own) and an environment.

    The environment is "NAME=TEXT" as Latin-1 text, in order, doubles included.
    """

    root: str = ""
    environment: tuple[str, ...] = ()

    @staticmethod
    def own() -> System:
        """This process's."""
        return System("", tuple((k + b"=" + v).decode("latin-1") for k, v in os.environb.items()))


@dataclass(slots=True)
class Statements:
    """All that was found, in the order in which it counts."""

    config_path: str = CONFIG_PATH
    all: list[Statement] = field(default_factory=list)

    def text_of(self, dialect: Dialect, setting: Setting) -> str:
        """The text of a setting without a key; empty when it is not set."""
        found = self.find(dialect, setting)
        return found.text if found else ""

    def find(self, dialect: Dialect, setting: Setting) -> Statement | None:
        """The statement of a setting without a key; None when it is not set."""
        for each in self.all:
            option = each.option
            if (
                option.dialect is dialect
                and option.setting is setting
                and each.target is Target.EVERY
                and each.text
            ):
                return each
        return None

    def describe(self, statement: Statement) -> str:
        """How a statement is named in messages."""
        name, text = sizes.quote(statement.name), sizes.quote(statement.text)
        if statement.origin is Origin.CONFIG_FILE:
            return f"{name} = {text} in {self.config_path[:120]}"
        place = {Origin.FIRST_PROCESS: " of process 1", Origin.OVERRIDE: f" in {OVERRIDE_PATH}"}
        return f"{name}={text}{place.get(statement.origin, '')}"

    def has(self, name: str) -> bool:
        """Whether the name was found already."""
        return any(each.name == name for each in self.all)

    def add(self, statement: Statement) -> None:
        """Append.

        Raises:
            ConfigError: when there are more than the library holds.
        """
        if len(self.all) == _MOST:
            raise ConfigError(f"more than {_MOST} limits are set. Set fewer")
        self.all.append(statement)


class FileResult(enum.Enum):
    """How reading a file ended when it gave no content."""

    MISSING = enum.auto()
    UNREADABLE = enum.auto()
    TOO_LARGE = enum.auto()


def read_file(root: str, path: str, most_bytes: int) -> bytes | FileResult:
    """A whole small file; a file as large as the bound is too large, as in the library."""
    try:
        descriptor = os.open(root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return FileResult.MISSING
    except (OSError, ValueError):
        return FileResult.UNREADABLE
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return FileResult.UNREADABLE
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(most_bytes)
    except OSError:
        return FileResult.UNREADABLE
    finally:
        os.close(descriptor)
    return FileResult.TOO_LARGE if len(content) == most_bytes else content


def gather(system: System) -> Statements:
    """Every known name with its text.

    Raises:
        ConfigError: when a source is there but cannot be read, or a name's key is nonsense.
    """
    found = Statements()
    for entry in system.environment:
        statement = _read_entry(entry, Origin.ENVIRONMENT)
        # The first of two equal names counts, as it does for getenv.
        if statement and not found.has(statement.name):
            found.add(statement)
    _gather_first_process(system.root, found)
    _gather_overrides(system.root, found)
    _gather_config_file(system.root, found)
    return found


def _read_entry(entry: str, origin: Origin) -> Statement | None:
    name, equals, text = entry.partition("=")
    known = find(name) if equals else None
    if known is None:
        if equals and origin is not Origin.OVERRIDE and own_names.is_unknown(name):
            raise _unknown(name, origin)
        return None
    option, key = known
    located = _read_key(option, key)
    if located is None:
        or_uuid = " or a UUID" if option.keys is Keys.INDEX_OR_UUID else ""
        raise ConfigError(f"{sizes.quote(name)} names no GPU. End it with an index{or_uuid}")
    return Statement(option, name, text, origin, *located)


def _unknown(name: str, origin: Origin) -> ConfigError:
    """A typo in a name of ours would be a limit that nobody holds."""
    place = " of process 1" if origin is Origin.FIRST_PROCESS else ""
    meant = own_names.nearest(name, in_file=False)
    fix = f"Did you mean {meant}?" if meant else "Unset it, or see docs/configuration.md"
    return ConfigError(f"unknown variable {sizes.quote(name)}{place}. {fix}")


def _read_key(option: Option, key: str) -> tuple[Target, int, bytes] | None:
    """The GPU that a key means: "" every, "_0" an index, "_GPU-..." a UUID; None is nonsense.

    A shell cannot set a name with dashes, so that '_' stands for '-' in a UUID, too.
    """
    if not key:
        return Target.EVERY, 0, bytes(16)
    if option.keys is Keys.INDEX_OR_UUID and len(key) <= 41:
        try:
            return Target.UUID, 0, sizes.parse_uuid(key[1:].replace("_", "-"))
        except sizes.TextError:
            pass
    index = sizes.parse_index(key[1:])
    return None if index is None else (Target.ORDINAL, index, bytes(16))


def _gather_first_process(root: str, found: Statements) -> None:
    """What the container was given, for a shell beside it (ssh, sudo) that lacks it."""
    if not _first_process_is_ours(root):
        return
    content = _first_process_environment(root)
    for entry in content.split("\0"):
        statement = _read_entry(entry, Origin.FIRST_PROCESS)
        if statement is None or found.has(statement.name):
            continue
        # Our own names fall back together: a general limit set here must not lose to a special
        # one of process 1 that the one who set it could not see.
        if statement.option.dialect is Dialect.GPUFENCE and any(
            each.option is statement.option and each.origin is Origin.ENVIRONMENT
            for each in found.all
        ):
            continue
        found.add(statement)


def _first_process_is_ours(root: str) -> bool:
    if root:
        return True
    try:
        own, first = os.stat("/proc/self/ns/pid"), os.stat("/proc/1/ns/pid")
    except OSError:
        return False
    return os.getpid() != 1 and (own.st_dev, own.st_ino) == (first.st_dev, first.st_ino)


def _first_process_environment(root: str) -> str:
    try:
        with Path(root + "/proc/1/environ").open("rb") as file:
            return file.read(_FIRST_PROCESS_BYTES).decode("latin-1")
    except OSError:
        return ""


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    """Numbered lines without blanks around them, comments and empty ones left out."""
    for number, raw in enumerate(content.decode("latin-1").split("\n"), 1):
        line = raw.strip(_BLANKS)
        if line and line[0] != "#":
            yield number, line


def _read_or_refuse(root: str, path: str, required: bool) -> bytes:
    content = read_file(root, path, SMALL_FILE_BYTES)
    if isinstance(content, bytes):
        return content
    if content is FileResult.MISSING and not required:
        return b""
    if content is FileResult.TOO_LARGE:
        raise ConfigError(f"{path} is larger than {SMALL_FILE_BYTES - 1} bytes. Make it smaller")
    problem = "does not exist" if content is FileResult.MISSING else "cannot be read"
    raise ConfigError(f"{path} {problem}. Make it a readable file or take it away")


def _gather_overrides(root: str, found: Statements) -> None:
    """HAMi's file: NAME=VALUE lines that overrule the environment. Only its own names count."""
    for number, line in _lines(_read_or_refuse(root, OVERRIDE_PATH, False)):
        if "=" not in line:
            raise ConfigError(f"{OVERRIDE_PATH} line {number} has no '='. Write NAME=VALUE")
        statement = _read_entry(line, Origin.OVERRIDE)
        if statement is None or statement.option.dialect is not Dialect.HAMI:
            continue
        for position, before in enumerate(found.all):
            if before.name == statement.name:
                found.all[position] = statement
                break
        else:
            found.add(statement)


def _gather_config_file(root: str, found: Statements) -> None:
    named = found.text_of(Dialect.GPUFENCE, Setting.CONFIG_FILE)
    if len(named) >= 256:
        raise ConfigError("GPUFENCE_CONFIG is too long. Name a shorter path")
    path = found.config_path = named or CONFIG_PATH
    for number, line in _lines(_read_or_refuse(root, path, bool(named))):
        name, equals, text = line.partition("=")
        if not equals:
            raise ConfigError(f"{path} line {number} has no '='. Write NAME = VALUE")
        name, text = name.strip(_BLANKS), text.strip(_BLANKS)
        shown = f"{path} line {number}: '{sizes.quote(name)}'"
        known = find_in_file(name)
        if known is None:
            meant = own_names.nearest(name, in_file=True)
            fix = f"Did you mean {meant}?" if meant else "See docs/configuration.md"
            raise ConfigError(f"{shown} is unknown. {fix}")
        located = _read_key(*known)
        if located is None:
            raise ConfigError(f"{shown} names no GPU. End it with an index or a UUID")
        if found.has(name):
            raise ConfigError(f"{shown} stands there twice. Keep one")
        found.add(Statement(known[0], name, text, Origin.CONFIG_FILE, *located))


def split_list(text: str, separator: str) -> Sequence[str]:
    """The parts of a list; what ends the text is no part, so "a,b," has two."""
    parts = text.split(separator)
    return parts[:-1] if parts[-1] == "" else parts
