"""Reads what the build knows: the API model and the two lists of deliberate exceptions.

Owns the reading of `lib/api` (docs/interfaces.md section 1). Must not know drivers or ELF.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA = 2
LIBRARIES = ("cuda", "nvml")
ENFORCED = frozenset({"alloc", "free", "launch", "query", "context", "lookup"})


@dataclass(frozen=True, slots=True)
class Known:
    """One exported name that the build knows and forwards."""

    name: str
    base: str
    prototype: str  # "" for a name that is in no header
    header: str  # file and first version, "cuda.h 11.8"; "" without prototype
    kind: str
    reason: str
    first_driver: str  # "" for a forecast


@dataclass(frozen=True, slots=True)
class Rule:
    """One line `pattern : reason` of an exception list."""

    pattern: str
    reason: str

    def covers(self, name: str, base: str) -> bool:
        """Whether it names the symbol itself, or, as `BASE*`, every variant of its base."""
        if self.pattern.endswith("*"):
            return base == self.pattern[:-1]
        return name == self.pattern


@dataclass(frozen=True, slots=True)
class Api:
    """Everything that findsyms knows about the two libraries."""

    folder: Path
    known: Mapping[str, Known]
    library_of: Mapping[str, str]
    left_to_driver: tuple[Rule, ...]
    passed_through: tuple[Rule, ...]

    def left(self, name: str) -> str:
        """Why an export stays the driver's own; "" if it does not. Here `*` ends any prefix."""
        for rule in self.left_to_driver:
            prefix = rule.pattern.removesuffix("*")
            if name == rule.pattern or (prefix != rule.pattern and name.startswith(prefix)):
                return rule.reason
        return ""

    def excuse(self, name: str) -> str:
        """Why an enforced symbol is passed through on purpose; "" if it is not."""
        base = self.known[name].base if name in self.known else name
        return next((r.reason for r in self.passed_through if r.covers(name, base)), "")


def default_folder(package: Path) -> Path:
    """`<package>/../api` when installed, else `<repository>/lib/api`."""
    installed = package.parent / "api"
    return installed if installed.is_dir() else package.parent.parent / "lib" / "api"


def load(folder: Path) -> Api:
    """Read the model of both libraries.

    Raises:
        ToolError: exit 1, a file is missing or not what docs/interfaces.md describes.
    """
    known: dict[str, Known] = {}
    library_of: dict[str, str] = {}
    for library in LIBRARIES:
        path = folder / f"{library}.json"
        try:
            names = _names(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise _broken(path, (error.strerror or str(error)).lower()) from None
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(path, f"not an API model of schema {SCHEMA} ({error})") from None
        known |= names
        library_of |= dict.fromkeys(names, library)
    return Api(
        folder=folder,
        known=known,
        library_of=library_of,
        left_to_driver=read_rules(folder / "left-to-driver.txt"),
        passed_through=read_rules(folder / "passthrough.txt"),
    )


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Read lines `pattern : reason`; empty lines and `#` comments are skipped.

    Raises:
        ToolError: exit 1, the file is missing or a line has no reason.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _broken(path, (error.strerror or str(error)).lower()) from None
    rules = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, colon, reason = (part.strip() for part in line.partition(" : "))
        if not (pattern and colon and reason):
            raise _broken(path, f"line {number} is not 'pattern : reason'")
        rules.append(Rule(pattern, reason))
    return tuple(rules)


def _broken(path: Path, why: str) -> ToolError:
    return ToolError(
        what=f"API description '{path}' refused",
        why=why,
        fix="Restore it from version control, or write the model with `hookgen extract`.",
    )


def _names(model: dict[str, Any]) -> dict[str, Known]:
    if model["schema"] != SCHEMA:
        raise ValueError(f"schema {model['schema']}")
    names = {entry["name"]: _function(entry) for entry in model["functions"]}
    for alias in model["aliases"]:
        names[alias["name"]] = _alias(alias, names[alias["target"]])
    for entry in model["untyped"]:
        first = _first(entry["drivers"])
        name, kind = entry["name"], entry.get("kind", "plain")
        names[name] = Known(name, name, "", "", kind, entry["reason"], first)
    return names


def _function(entry: dict[str, Any]) -> Known:
    return Known(
        name=entry["name"],
        base=entry["base"],
        prototype=prototype(entry["returns"], entry["name"], entry["params"]),
        header=f"{entry['header']} {entry['headers']['first']}",
        kind=entry["kind"],
        reason=entry["reason"],
        first_driver=_first(entry["drivers"]),
    )


def _alias(alias: dict[str, Any], target: Known) -> Known:
    name = alias["name"]
    return Known(
        name=name,
        base=name,
        prototype=target.prototype.replace(f"{target.name}(", f"{name}(", 1),
        header=target.header,
        kind=target.kind,
        reason=f"alias of {target.name}: {target.reason}",
        first_driver=_first(alias["drivers"]),
    )


def _first(drivers: dict[str, str] | None) -> str:
    return drivers["first"] if drivers else ""


def prototype(returns: str, name: str, params: Iterable[Mapping[str, str]]) -> str:
    """Spell a declaration in C, with parameter names."""
    listed = ", ".join(_declare(param["type"], param["name"]) for param in params)
    return f"{_declare(returns, name)}({listed or 'void'})"


def _declare(kind: str, name: str) -> str:
    """`char *` x -> `char *x`, `int [4]` x -> `int x[4]`, `void (*)(int)` f -> `void (*f)(int)`."""
    if "(*)" in kind:
        return kind.replace("(*)", f"(*{name})", 1)
    head, bracket, dimensions = kind.partition("[")
    gap = "" if head.rstrip().endswith("*") else " "
    return f"{head.rstrip()}{gap}{name}{bracket}{dimensions}"
