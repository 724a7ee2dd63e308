"""Claims (what was written, where, for which GPU) and limits (claims joined to devices).

The same decisions as lib/src/config/resolve.cpp; reads nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from . import sizes
from .options import Dialect
from .sources import ConfigError, Target

MOST_NOTES = 8


class Kind(enum.IntEnum):
    """What a claim is about; the values are the library's."""

    MEMORY = 0
    CORES = 1
    SOFT_CORES = 2
    OVERSUBSCRIBE = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """One readable statement of one source.

    `amount` is bytes, or thousandths of a percent, or for oversubscription the ratio in thousandths
    (1: on without a ratio); 0 is an explicit "no limit". Inside a dialect a device's lowest layer
    hides the others, and in a layer what names the device hides what names all.
    """

    kind: Kind
    target: Target
    percent_of_device: bool
    dialect: Dialect
    layer: int
    index: int
    uuid: bytes
    amount: int
    source: str

    def concerns(self, device: Device) -> bool:
        """Whether the claim is for this device."""
        if self.target is Target.ORDINAL:
            return self.index == device.ordinal
        if self.target is Target.NVML_INDEX:
            return device.nvml_index is not None and self.index == device.nvml_index
        return self.target is Target.EVERY or self.uuid == device.uuid

    def amount_on(self, device: Device) -> int:
        """The amount where this device is meant."""
        if self.percent_of_device:
            return sizes.part_of(device.total_bytes, self.amount)
        return self.amount


@dataclass(slots=True)
class Claims:
    """All claims, and what else the sources say."""

    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    process_scope: bool = False
    container: str = ""
    state_folder: str = ""
    device_name: str = ""
    log_level: str = "warn"

    def note(self, text: str) -> None:
        """Keep a warning for the moment when limits take effect; too many are dropped."""
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    @property
    def any_limit(self) -> bool:
        """Whether somebody set a limit."""
        return any(claim.amount for claim in self.claims)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the driver reports it; nvml_index None: unknown."""

    uuid: bytes
    ordinal: int
    nvml_index: int | None
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A claim and what it amounts to on one device."""

    claim: Claim
    amount: int


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What holds for one device; None: no memory limit, 0: no core limit or oversubscription."""

    memory_bytes: int | None
    memory_source: str
    core_share: int
    core_burst: int
    oversubscribe: int


def of_dialects(claims: Iterable[Claim], device: Device) -> list[Chosen]:
    """What each dialect says for a device, in the dialects' order; claims of one kind."""
    chosen: dict[Dialect, Chosen] = {}
    for claim in claims:
        if claim.concerns(device):
            one = Chosen(claim, claim.amount_on(device))
            if claim.dialect not in chosen or _hides(one, chosen[claim.dialect]):
                chosen[claim.dialect] = one
    return [chosen[dialect] for dialect in Dialect if dialect in chosen]


def _hides(one: Chosen, other: Chosen) -> bool:
    if one.claim.layer != other.claim.layer:
        return one.claim.layer < other.claim.layer
    if one.claim.target is not other.claim.target:
        return one.claim.target > other.claim.target
    return one.amount != 0 and (other.amount == 0 or one.amount < other.amount)


@dataclass(slots=True)
class Resolution:
    """One join of claims and devices."""

    limits: list[DeviceLimits]
    warnings: list[str]

    @property
    def limited(self) -> bool:
        """Whether a memory limit holds anywhere."""
        return any(each.memory_bytes is not None for each in self.limits)


def resolve(claims: Claims, devices: Sequence[Device]) -> Resolution:
    """Join claims to devices.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    return _Resolver(claims, devices).run()


class _Resolver:
    def __init__(self, claims: Claims, devices: Sequence[Device]) -> None:
        self._claims = claims
        self._devices = devices
        self._warnings = list(claims.notes)
        self._warned_conflict = False
        self._warned_clamp = False
        self._not_enforced: Claim | None = None

    def run(self) -> Resolution:
        self._check_targets()
        limits = [self._limit(device) for device in self._devices]
        if self._not_enforced:
            self._warnings.append(
                f"{self._not_enforced.source} is read, but this build enforces memory limits only"
            )
        return Resolution(limits, self._warnings)

    def _check_targets(self) -> None:
        stray: Claim | None = None
        stray_of_map: Claim | None = None
        map_fits = False
        nvml_known = any(device.nvml_index is not None for device in self._devices)
        for claim in self._claims.claims:
            of_map = claim.dialect is Dialect.VGPU_RS
            if claim.target is Target.NVML_INDEX and not nvml_known:
                raise ConfigError(
                    f"{claim.source} counts GPUs as NVML does, which is not to be had. "
                    "Name them by UUID"
                )
            if any(claim.concerns(device) for device in self._devices):
                map_fits = map_fits or of_map
                continue
            if stray is None and claim.amount:
                stray = claim
            if of_map:
                stray_of_map = claim
        if stray_of_map and not map_fits:
            raise ConfigError(
                f"{stray_of_map.source} names none of this process's GPUs. Name them by UUID"
            )
        if stray:
            self._warnings.append(f"{stray.source} is for a GPU that this process does not have")

    def _limit(self, device: Device) -> DeviceLimits:
        memory = self._choose(Kind.MEMORY, device)
        memory_bytes = self._memory_bytes(memory, device) if memory else None
        hard = self._choose(Kind.CORES, device)
        soft = self._choose(Kind.SOFT_CORES, device)
        ratio = self._choose(Kind.OVERSUBSCRIBE, device)
        if self._not_enforced is None and (hard or ratio):
            self._not_enforced = (hard or ratio).claim  # type: ignore[union-attr]
        return DeviceLimits(
            memory_bytes,
            memory.claim.source if memory else "",
            hard.amount if hard else 0,
            soft.amount if hard and soft and soft.amount > hard.amount else 0,
            ratio.amount if ratio else 0,
        )

    def _memory_bytes(self, memory: Chosen, device: Device) -> int:
        source = memory.claim.source
        if memory.amount == 0:
            raise ConfigError(f"{source} is less than one byte of the GPU. Write more")
        if not 0 < device.total_bytes < memory.amount:
            return memory.amount
        if not self._warned_clamp:
            self._warned_clamp = True
            self._warnings.append(
                f"{source} is more than the GPU has: its {device.total_bytes} bytes are the limit"
            )
        return device.total_bytes

    def _choose(self, kind: Kind, device: Device) -> Chosen | None:
        """What the dialects agree on: the lowest of those that name a limit."""
        lowest: Chosen | None = None
        mine = [claim for claim in self._claims.claims if claim.kind is kind]
        for chosen in of_dialects(mine, device):
            if not chosen.claim.amount:
                continue
            if lowest is None:
                lowest = chosen
            elif chosen.amount != lowest.amount:
                lower, higher = sorted((chosen, lowest), key=lambda each: each.amount)
                if not self._warned_conflict:
                    self._warned_conflict = True
                    low, high = lower.claim.source, higher.claim.source
                    self._warnings.append(f"{low} holds, because it is lower than {high}")
                lowest = lower
        return lowest
