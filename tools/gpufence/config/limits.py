"""Claims (what was written, where, for which GPU) as the library reads them.

Data, and the one call that fills it. Must not know any grammar or rule: lib/src/config has them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from .sources import System
from .terms import NO_TERMS, Priority, Terms


class Kind(enum.IntEnum):
    """What a claim is about; the values are the library's."""

    MEMORY = 0
    CORES = 1
    SOFT_CORES = 2
    OVERSUBSCRIBE = 3
    SPILL = 4


class Target(enum.IntEnum):
    """Which GPU is meant; the values are the library's."""

    EVERY = 0
    ORDINAL = 1
    NVML_INDEX = 2
    UUID = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """One readable statement of one source.

    `amount` is bytes, or thousandths of a percent, or for oversubscription the ratio in thousandths
    (1: on without a ratio, as a spill switch says it); 0 is an explicit "no limit".
    """

    kind: Kind
    target: Target
    percent_of_device: bool
    dialect: str  # as people call it
    layer: int
    index: int
    uuid: bytes
    amount: int
    source: str


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU, or all, and what is claimed for it.

    `names` is a claim for that GPU. `applies` is None where no limit is the answer, or where parts
    and bytes cannot be compared without the GPU; `depends` tells the latter.
    """

    kind: Kind
    names: Claim
    applies: Claim | None
    depends: bool
    overruled: tuple[Claim, ...]

    @property
    def nothing(self) -> str:
        """The source that says "no limit", where one does; the first of several."""
        return next((claim.source for claim in self.overruled if not claim.amount), "")


@dataclass(frozen=True, slots=True)
class Claims:
    """All claims, and what else the sources say."""

    system: System = field(default_factory=System)
    any_limit: bool = False  # a soft share alone limits nothing
    claims: tuple[Claim, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    process_scope: bool = False
    container: str = ""
    state_folder: str = ""
    node_folder: str = ""
    device_name: str = ""
    terms: Terms = NO_TERMS
    term_sources: dict[str, str] = field(default_factory=dict)  # by terms.GRAMMARS' names
    mode_source: str = ""  # who makes core limits parts of MPS's threads; "": they are of GPU time
    hypervisor: str = ""  # whom a program will ask for limits; "" when nobody
    log_level: str = "warn"
    log_file: str = ""
    log_is_daily: bool = False


_PLAIN = ("any_limit", "process_scope", "container", "state_folder", "node_folder", "device_name",
          "mode_source", "hypervisor", "log_level", "log_file", "log_is_daily")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the driver reports it; nvml_index None: unknown."""

    uuid: bytes
    ordinal: int
    nvml_index: int | None
    total_bytes: int

    def text(self) -> str:
        """As the library is told of it."""
        index = -1 if self.nvml_index is None else self.nvml_index
        return f"{self.ordinal} {index} {self.uuid.hex()} {self.total_bytes};"


def read(system: System) -> Claims:
    """Read every source.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    found = system.claims()
    claims = tuple(_claim(*each) for each in found["claims"])
    terms = {name: value for name, (value, _) in found["terms"].items()}
    priority = terms.get("priority")
    return Claims(
        system=system,
        claims=claims,
        rows=tuple(_row(claims, *each) for each in found["rows"]),
        notes=tuple(found["notes"]),
        terms=Terms(
            None if priority is None else Priority(priority),
            terms.get("weight"),
            terms.get("core_burst"),
            terms.get("core_floor"),
        ),
        term_sources={name: source for name, (_, source) in found["terms"].items()},
        **{name: found[name] for name in _PLAIN},
    )


def memory_on(system: System, devices: Sequence[Device]) -> list[int | None]:
    """The lowest amount of memory that is claimed for each device; None: none is.

    Raises:
        ConfigError: as read().
    """
    found = system.claims("".join(device.text() for device in devices))
    return list(found["memory"]) if devices else []


def _claim(
    kind: int, target: int, percent_of_device: bool, dialect: str, layer: int, index: int,
    uuid: str, amount: int, source: str,
) -> Claim:  # fmt: skip
    return Claim(
        Kind(kind), Target(target), percent_of_device, dialect, layer, index,
        bytes.fromhex(uuid), amount, source,
    )  # fmt: skip


def _row(
    claims: Sequence[Claim], kind: int, names: int, applies: int | None, depends: bool,
    rest: Sequence[int],
) -> Row:  # fmt: skip
    found = None if applies is None else claims[applies]
    return Row(Kind(kind), claims[names], found, depends, tuple(claims[each] for each in rest))
