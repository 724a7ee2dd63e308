"""Pure set algebra: one driver library against the build, a baseline and the rules for holes.

Owns the words of a report (status, kind, hole). Must not do I/O, know ELF or any output format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .api import ENFORCED
from .errors import Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .api import Api, Known
    from .elf import Symbol
    from .values import Value

# Status words: what stands between a program and this symbol of the driver.
OVERRIDDEN = "overridden"  # a hook, by hand or rendered (a strong symbol of our library)
PASSTHROUGH = "passthrough"  # a rendered, typed jump (a weak symbol)
UNTYPED = "untyped"  # forwarded without a prototype
DRIVER = "driver"  # deliberately the driver's own
UNCOVERED = "uncovered"  # our library does not have it
STATUSES = (OVERRIDDEN, PASSTHROUGH, UNTYPED, DRIVER, UNCOVERED)

_VARIANT = re.compile(r"(?P<base>\w+?)(?:_v\d+)?(?:_ptds|_ptsz)?")

# For names that no header describes: what they would do if their authors kept to their own words.
_GUESSES = (
    ("launch", re.compile(r"Launch")),
    ("free", re.compile(r"Free|(?:Array|Pool)\w*Destroy|MemRelease")),
    ("alloc", re.compile(r"Alloc(?!ation)|(?:Mem|Array|Pool)\w*Create")),
    ("query", re.compile(r"MemGetInfo|MemoryInfo|TotalMem|RunningProcesses|ProcessUtilization")),
    ("context", re.compile(r"Ctx\w*(?:Create|Destroy|Retain|Release|Reset)")),
    ("lookup", re.compile(r"ProcAddress|ExportTable")),
)


@dataclass(frozen=True, slots=True)
class Hooked:
    """The built library that a driver is compared with."""

    path: str
    strong: frozenset[str]
    weak: frozenset[str]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What `new` and `gone` are measured against."""

    label: str  # "driver 535.261.03" or a path
    names: frozenset[str]
    driver: str = ""  # "" if unknown


@dataclass(frozen=True, slots=True)
class Subject:
    """The driver library under examination."""

    library: str  # cuda | nvml
    soname: str
    asked: str  # what the user called it
    path: str
    driver: str  # "" if unknown
    machine: str
    build_id: str
    symbols: tuple[Symbol, ...]
    plt_self: tuple[str, ...]
    data_self: tuple[str, ...]
    self_calls_known: bool  # a list of names has no relocations


@dataclass(frozen=True, slots=True)
class Row:
    """One exported symbol and everything a report says of it."""

    name: str
    base: str
    is_data: bool
    status: str
    status_reason: str
    kind: str
    kind_reason: str
    prototype: str
    header: str
    first_driver: str
    is_new: bool
    hole: str  # why it is a hole; "" if it is none


@dataclass(frozen=True, slots=True)
class SelfCall:
    """An export that the library itself reaches through a slot that we can take over."""

    name: str
    through: str  # plt | data
    overridden: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The findings for one library."""

    subject: Subject
    hooked: str  # path of the library compared with, "" for the API model
    baseline: str
    rows: tuple[Row, ...]
    removed: tuple[str, ...]
    self_calls: tuple[SelfCall, ...]
    values: tuple[Value, ...] = ()

    @property
    def open_values(self) -> tuple[Value, ...]:
        """Values that reach an enforced function and that nobody judged."""
        return tuple(value for value in self.values if not value.judged)

    @property
    def functions(self) -> tuple[Row, ...]:
        """The exported functions."""
        return tuple(row for row in self.rows if not row.is_data)

    @property
    def data(self) -> tuple[Row, ...]:
        """The exported variables."""
        return tuple(row for row in self.rows if row.is_data)

    @property
    def new(self) -> tuple[Row, ...]:
        """Symbols that the baseline lacks."""
        return tuple(row for row in self.rows if row.is_new)

    @property
    def holes(self) -> tuple[Row, ...]:
        """Symbols through which a limit could be missed."""
        return tuple(row for row in self.rows if row.hole)

    def with_status(self, status: str) -> tuple[Row, ...]:
        """All symbols of one status."""
        return tuple(row for row in self.rows if row.status == status)

    def findings(self) -> Exit:
        """The bits that this library adds to the exit status."""
        bits = Exit.OK
        if self.new or self.with_status(UNCOVERED):
            bits |= Exit.ADDITIONS
        if self.removed:
            bits |= Exit.REMOVALS
        if self.holes or self.open_values:
            bits |= Exit.UNHANDLED
        return bits


def base_of(name: str) -> str:
    """A name without its version and per-thread suffix."""
    match = _VARIANT.fullmatch(name)
    return match["base"] if match else name


def examine(
    subject: Subject,
    api: Api,
    hooked: Hooked | None,
    baseline: Baseline,
    first_drivers: Mapping[str, str],
) -> Report:
    """Compare one library with the build and with a baseline.

    Args:
        subject: the driver library.
        api: what the build knows.
        hooked: the built library; None compares with the model, where no symbol is overridden yet.
        baseline: the names that are not new.
        first_drivers: oldest listed driver per name, for names that the model lacks.
    """
    bases = {entry.base: entry for entry in api.known.values()}
    overridden = _overridden_bases(api, hooked)
    rows = tuple(
        _row(symbol, api, hooked, baseline, first_drivers, bases, overridden)
        for symbol in sorted(subject.symbols)
    )
    exported = {symbol.name for symbol in subject.symbols}
    strong = hooked.strong if hooked else frozenset()
    calls = [(name, "plt") for name in subject.plt_self]
    calls += [(name, "data") for name in subject.data_self]
    return Report(
        subject=subject,
        hooked=hooked.path if hooked else "",
        baseline=baseline.label,
        rows=rows,
        removed=tuple(sorted(baseline.names - exported)),
        self_calls=tuple(SelfCall(name, through, name in strong) for name, through in calls),
    )


def _overridden_bases(api: Api, hooked: Hooked | None) -> Mapping[str, str]:
    """Base -> one overridden variant of it, the first by name."""
    found: dict[str, str] = {}
    for name in sorted(hooked.strong) if hooked else ():
        if name in api.known and api.known[name].prototype:
            found.setdefault(api.known[name].base, name)
    return found


def _row(
    symbol: Symbol,
    api: Api,
    hooked: Hooked | None,
    baseline: Baseline,
    first_drivers: Mapping[str, str],
    bases: Mapping[str, Known],
    overridden: Mapping[str, str],
) -> Row:
    name = symbol.name
    known = api.known.get(name)
    base = known.base if known else base_of(name)
    is_data = symbol.type in ("object", "tls")
    status, reason = _status(name, known, api.left(name), hooked)
    kind, kind_reason = _kind(name, base, is_data, status, known, bases)
    hole = "" if is_data else hole_of(name, base, status, kind, api, overridden, hooked is not None)
    return Row(
        name=name,
        base=base,
        is_data=is_data,
        status=status,
        status_reason=reason or (api.excuse(name) if status == PASSTHROUGH else ""),
        kind=kind,
        kind_reason=kind_reason,
        prototype=known.prototype if known else "",
        header=known.header if known else "",
        first_driver=(known.first_driver if known else "") or first_drivers.get(name, ""),
        is_new=name not in baseline.names,
        hole=hole,
    )


def _status(name: str, known: Known | None, left: str, hooked: Hooked | None) -> tuple[str, str]:
    """What we do with a symbol, and the reason where one is due."""
    typed = known is not None and bool(known.prototype)
    if hooked is not None and name in hooked.strong and typed:
        return OVERRIDDEN, ""
    ours = known is not None if hooked is None else name in hooked.strong | hooked.weak
    if ours and typed:
        return PASSTHROUGH, ""
    if ours:
        return UNTYPED, known.reason if known else "unknown to the API model"
    if left:
        return DRIVER, left
    if known is not None:
        return UNCOVERED, "the built library lacks it; build it again"
    return UNCOVERED, "unknown to this build; a call reaches the driver unseen"


def _kind(
    name: str,
    base: str,
    is_data: bool,
    status: str,
    known: Known | None,
    bases: Mapping[str, Known],
) -> tuple[str, str]:
    if known is not None:
        return known.kind, known.reason
    if status == DRIVER or is_data:
        return "plain", "a variable" if is_data else "not part of either API"
    if base in bases:
        return bases[base].kind, f"as {bases[base].name}: {bases[base].reason}"
    for kind, pattern in _GUESSES:
        if pattern.search(name):
            return kind, "guessed from the name; no header of this build declares it"
    return "unknown", "no header of this build declares it"


def hole_of(
    name: str,
    base: str,
    status: str,
    kind: str,
    api: Api,
    overridden: Mapping[str, str],
    has_library: bool,
) -> str:
    """Why a symbol is a hole in the fence, "" if it is none.

    Without a built library only symbols that nobody forwards can be judged: whether the others are
    overridden is decided by the hooks, which the model does not know.
    """
    if status in (OVERRIDDEN, DRIVER) or api.excuse(name):
        return ""
    if base in overridden:
        return f"its sibling {overridden[base]} is overridden"
    if kind in ENFORCED and (has_library or status == UNCOVERED):
        return f"of an enforced kind ({kind}), and nothing handles it"
    return ""


@dataclass(frozen=True, slots=True)
class OpenName:
    """A function of the model that a built library leaves open, whatever driver runs."""

    name: str
    sibling: str  # the overridden variant of its base; "" if the whole base is open


def open_names(api: Api, hooked: Hooked) -> tuple[OpenName, ...]:
    """All holes of a built library, by name."""
    overridden = _overridden_bases(api, hooked)
    found = []
    for name, known in sorted(api.known.items()):
        status = OVERRIDDEN if name in hooked.strong and known.prototype else PASSTHROUGH
        if hole_of(name, known.base, status, known.kind, api, overridden, has_library=True):
            found.append(OpenName(name, overridden.get(known.base, "")))
    return tuple(found)
