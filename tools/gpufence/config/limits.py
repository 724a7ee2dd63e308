"""Claims (what was written, where, for which GPU) and limits (claims joined to devices).

The same decisions as lib/src/config/resolve.cpp; reads nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from . import sizes
from .options import Dialect
from .sources import ConfigError, Target
from .terms import Terms

MOST_NOTES = 8


class Kind(enum.IntEnum):
    """What a claim is about; the values are the library's."""

    MEMORY = 0
    CORES = 1
    SOFT_CORES = 2
    OVERSUBSCRIBE = 3
    SPILL = 4


@dataclass(frozen=True, slots=True)
class Claim:
    """One readable statement of one source.

    `amount` is bytes, or thousandths of a percent, or for oversubscription the ratio in thousandths
    (1: on without a ratio, as a spill switch says it); 0 is an explicit "no limit". Inside a
    dialect a device's lowest layer hides the others, and in a layer what names the device hides
    what names all.
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
    node_folder: str = ""
    device_name: str = ""
    terms: Terms = field(default_factory=Terms)
    term_sources: dict[str, str] = field(default_factory=dict)  # by terms.GRAMMARS' names
    hypervisor: str = ""  # whom a program will ask for limits; "" when nobody
    log_level: str = "warn"
    log_file: str = ""
    log_is_daily: bool = False

    def note(self, text: str) -> None:
        """Keep a warning for the moment when limits take effect; too many are dropped."""
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    @property
    def any_limit(self) -> bool:
        """Whether somebody set a limit; a soft share alone limits nothing."""
        return any(each.amount and each.kind is not Kind.SOFT_CORES for each in self.claims)


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
    """What holds for one device; None: no memory limit, 0: no core limit or oversubscription.

    Shares of GPU time are in thousandths of a percent; the soft one holds while nobody else wants
    the GPU, and 0 means the hard one, always. A source is "" where nothing holds.
    """

    memory_bytes: int | None
    memory_source: str
    core_millipercent: int
    core_soft_millipercent: int
    oversubscribe: int
    core_source: str
    core_soft_source: str
    oversubscribe_source: str


def of_dialects(claims: Iterable[Claim], device: Device) -> dict[Dialect, Chosen]:
    """What each dialect says for a device; claims of one kind."""
    chosen: dict[Dialect, Chosen] = {}
    for claim in claims:
        if claim.concerns(device):
            one = Chosen(claim, claim.amount_on(device))
            if claim.dialect not in chosen or _hides(one, chosen[claim.dialect]):
                chosen[claim.dialect] = one
    return {dialect: chosen[dialect] for dialect in Dialect if dialect in chosen}


def _hides(one: Chosen, other: Chosen) -> bool:
    if one.claim.layer != other.claim.layer:
        return one.claim.layer < other.claim.layer
    if one.claim.target is not other.claim.target:
        return one.claim.target > other.claim.target
    return one.amount != 0 and (other.amount == 0 or one.amount < other.amount)


def lowest(said: Mapping[Dialect, Chosen]) -> Chosen | None:
    """The lowest of the dialects that name a limit."""
    named = (chosen for chosen in said.values() if chosen.claim.amount)
    return min(named, key=lambda chosen: chosen.amount, default=None)


def ceilings(
    hard: Mapping[Dialect, Chosen], soft: Mapping[Dialect, Chosen]
) -> dict[Dialect, Chosen]:
    """How far the share may rise, by each dialect that limits it.

    Who says nothing of it allows the hard share: the lowest of all holds, so that no dialect's soft
    share lifts another's hard one.
    """
    return {
        dialect: soft[dialect] if dialect in soft and 0 < one.amount < soft[dialect].amount else one
        for dialect, one in hard.items()
    }


def unequal_ordinal(claims: Sequence[Claim]) -> Claim | None:
    """A claim by CUDA ordinal beside which another GPU is claimed another amount."""
    for one in claims:
        if one.target is Target.ORDINAL and any(
            other.target is Target.ORDINAL
            and other.index != one.index
            and (other.kind, other.dialect) == (one.kind, one.dialect)
            and (other.amount, other.percent_of_device) != (one.amount, one.percent_of_device)
            for other in claims
        ):
            return one
    return None


@dataclass(slots=True)
class Resolution:
    """One join of claims and devices."""

    limits: list[DeviceLimits]
    warnings: list[str]

    @property
    def limited(self) -> bool:
        """Whether a limit holds anywhere."""
        return any(each.memory_bytes is not None or each.core_millipercent for each in self.limits)


def resolve(claims: Claims, devices: Sequence[Device]) -> Resolution:
    """Join claims to devices.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    return _Resolver(claims, devices).run()


_LIMITS = (Kind.MEMORY, Kind.CORES)


class _Resolver:
    def __init__(self, claims: Claims, devices: Sequence[Device]) -> None:
        self._claims = claims
        self._devices = devices
        self._warnings = list(claims.notes)
        self._warned_conflict = False
        self._warned_clamp = False

    def run(self) -> Resolution:
        self._check_targets()
        self._warn_of_reordering()
        limits = [self._limit(device) for device in self._devices]
        return Resolution(limits, self._warnings)

    def _check_targets(self) -> None:
        stray: Claim | None = None
        stray_limit: Claim | None = None
        any_fits = False
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
                any_fits = any_fits or claim.kind in _LIMITS
                continue
            if stray is None and claim.amount:
                stray = claim
            if stray_limit is None and claim.amount and claim.kind in _LIMITS:
                stray_limit = claim
            if of_map:
                stray_of_map = claim
        if stray_of_map and not map_fits:
            raise ConfigError(
                f"{stray_of_map.source} names none of this process's GPUs. Name them by UUID"
            )
        if stray_limit and not any_fits:
            raise ConfigError(
                f"{stray_limit.source} is for a GPU that this process does not have, and no limit "
                "is for one that it has. Name a GPU as `gpufence config` lists them"
            )
        if stray:
            self._warnings.append(f"{stray.source} is for a GPU that this process does not have")

    def _limit(self, device: Device) -> DeviceLimits:
        ratio = self._lowest(self._said(Kind.OVERSUBSCRIBE, device)) or self._lowest(
            self._said(Kind.SPILL, device)
        )
        oversold = ratio is not None and ratio.amount > 0
        memory = self._lowest(self._said(Kind.MEMORY, device))
        memory_bytes = self._memory_bytes(memory, device, oversold) if memory else None
        hard, soft = self._shares(device)
        return DeviceLimits(
            memory_bytes,
            memory.claim.source if memory else "",
            hard.amount if hard else 0,
            soft.amount if soft else 0,
            ratio.amount if ratio else 0,
            hard.claim.source if hard else "",
            soft.claim.source if soft else "",
            ratio.claim.source if ratio else "",
        )

    def _shares(self, device: Device) -> tuple[Chosen | None, Chosen | None]:
        """The hard share, and the soft one where it is higher."""
        hard, soft = self._said(Kind.CORES, device), self._said(Kind.SOFT_CORES, device)
        share, ceiling = self._lowest(hard), self._lowest(ceilings(hard, soft))
        rises = share and ceiling and ceiling.amount > share.amount
        return share, ceiling if rises else None

    def _memory_bytes(self, memory: Chosen, device: Device, oversold: bool) -> int:
        source = memory.claim.source
        if memory.amount == 0:
            raise ConfigError(f"{source} is less than one byte of the GPU. Write more")
        if oversold or not 0 < device.total_bytes < memory.amount:
            return memory.amount
        if not self._warned_clamp:
            self._warned_clamp = True
            self._warnings.append(
                f"{source} is more than the GPU has: its {device.total_bytes} bytes are the limit"
            )
        return device.total_bytes

    def _warn_of_reordering(self) -> None:
        """CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER renumber CUDA's GPUs and their limits."""
        unequal = unequal_ordinal(self._claims.claims)
        for device in self._devices:
            if unequal and device.nvml_index not in (None, device.ordinal):
                self._warnings.append(
                    f"{unequal.source[:200]} counts GPUs as CUDA does in this process, where its "
                    f"GPU {device.ordinal} is NVML's GPU {device.nvml_index}. Name them by UUID"
                )
                return

    def _said(self, kind: Kind, device: Device) -> dict[Dialect, Chosen]:
        return of_dialects((each for each in self._claims.claims if each.kind is kind), device)

    def _lowest(self, said: dict[Dialect, Chosen]) -> Chosen | None:
        """As lowest(), with one warning where dialects differ."""
        lowest: Chosen | None = None
        for chosen in said.values():
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
