"""The bytes of a limits file: what an operator set for a container, in two banks.

Knows their places through shared_layout.py. A change goes into the bank that is
not current, then the generation names it, so that a writer killed anywhere leaves the limits as
they were. Must not know files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpufence.config.terms import NO_TERMS, Priority, Terms

from . import shared_layout as layout

EVERY_GPU = bytes(16)

FILE_BYTES = layout.structure("LimitsBytes").bytes
GENERATION_AT = layout.structure("LimitsHeader").at("generation")
_HEADER = layout.structure("LimitsHeader").fields(
    "magic", "layout_version", "max_entries", "generation", "container"
)
_BANK = layout.structure("LimitsBank")
_BANK_HEAD = _BANK.fields("check", "generation", "count")
_TERMS = layout.structure("LimitsTerms").fields("burst_ns", "floor", "weight", "priority", "flags")
_ENTRY = layout.structure("LimitsEntry").fields(
    "uuid", "memory", "oversubscribe", "cores", "soft_cores", "flags"
)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What is set for one GPU, or for every GPU; None leaves it to environment and files.

    `memory` is bytes, or with `memory_is_part` billionths of a percent of the GPU; shares are in
    thousandths of a percent. 0 is an explicit "no limit". `terms` and `frozen` are the container's:
    they stand for every GPU, and for none alone.
    """

    memory: int | None = None
    memory_is_part: bool = False
    cores: int | None = None
    soft_cores: int | None = None
    terms: Terms = NO_TERMS
    frozen: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing is set."""
        return self == Amounts()

    @property
    def limits_nothing(self) -> bool:
        """Whether nothing is set that can differ between GPUs."""
        return self.memory is None and self.cores is None and self.soft_cores is None

    def over(self, general: Amounts) -> Amounts:
        """These, and where nothing is set, the general ones."""
        filled = self
        if self.memory is None:
            filled = replace(filled, memory=general.memory, memory_is_part=general.memory_is_part)
        if self.cores is None:
            filled = replace(filled, cores=general.cores)
        if self.soft_cores is None:
            filled = replace(filled, soft_cores=general.soft_cores)
        return replace(
            filled, terms=self.terms.over(general.terms), frozen=self.frozen or general.frozen
        )


def is_limits_file(content: bytes, container: str) -> bool:
    """Whether it is whole and begins as a limits file of this container does."""
    if len(content) < FILE_BYTES:
        return False
    magic, version, most, _, whose = _HEADER.unpack_from(content)
    known = (layout.LIMITS_MAGIC, layout.LIMITS_VERSION, layout.MAX_LIMITS_ENTRIES)
    return (magic, version, most) == known and whose == check_of(container.encode())


def current(content: bytes) -> tuple[int, dict[bytes, Amounts]] | None:
    """Generation and entries of a whole file; None while a bank is being written, or damaged."""
    generation = _HEADER.unpack_from(content)[3]
    start = bank_at(generation)
    check, written, count = _BANK_HEAD.unpack_from(content, start)
    if written != generation or count > layout.MAX_LIMITS_ENTRIES:
        return None
    terms, entries = start + _BANK.at("terms"), start + _BANK.at("entries")
    end = entries + _ENTRY.size * count
    if check_of(content[start + _BANK.at("generation") : end]) != check:
        return None
    found = dict(_unpack_entries(content[entries:end]))
    own = _unpack_terms(content[terms:entries])
    if not own.empty:
        found[EVERY_GPU] = own.over(found.get(EVERY_GPU, Amounts()))
    return generation, found


def bank_at(generation: int) -> int:
    """Where the bank of a generation stands."""
    return layout.structure("LimitsBytes").at("banks") + _BANK.bytes * (generation & 1)


def pack_bank(generation: int, entries: Mapping[bytes, Amounts]) -> bytes:
    """A bank, as far as it counts."""
    limits = {uuid: each for uuid, each in entries.items() if not each.limits_nothing}
    packed = b"".join(_pack_entry(uuid, each) for uuid, each in sorted(limits.items()))
    own = _pack_terms(entries.get(EVERY_GPU, Amounts()))
    bank = bytearray(
        _BANK_HEAD.pack(0, generation, len(limits))[: _BANK.at("terms")] + own + packed
    )
    struct.pack_into("<Q", bank, 0, check_of(bytes(bank[_BANK.at("generation") :])))
    return bytes(bank)


def _pack_terms(amounts: Amounts) -> bytes:
    terms = amounts.terms
    flags = (
        layout.PRIORITY_IS_SET * (terms.priority is not None)
        | layout.WEIGHT_IS_SET * (terms.weight is not None)
        | layout.BURST_IS_SET * (terms.burst_ns is not None)
        | layout.FLOOR_IS_SET * (terms.floor is not None)
        | layout.IS_FROZEN * amounts.frozen
    )
    return _TERMS.pack(
        terms.burst_ns or 0, terms.floor or 0, terms.weight or 0, terms.priority or 0, flags
    )


def _pack_entry(uuid: bytes, amounts: Amounts) -> bytes:
    flags = (
        layout.MEMORY_IS_SET * (amounts.memory is not None)
        | layout.MEMORY_IS_PART * amounts.memory_is_part
        | layout.CORES_ARE_SET * (amounts.cores is not None)
        | layout.SOFT_CORES_ARE_SET * (amounts.soft_cores is not None)
    )
    shares = (amounts.cores or 0, amounts.soft_cores or 0)
    return _ENTRY.pack(uuid, amounts.memory or 0, 0, *shares, flags)


def image(container: str, generation: int, entries: Mapping[bytes, Amounts]) -> bytes:
    """A whole file; `container` is the name as files have it."""
    content = bytearray(FILE_BYTES)
    _HEADER.pack_into(
        content,
        0,
        layout.LIMITS_MAGIC,
        layout.LIMITS_VERSION,
        layout.MAX_LIMITS_ENTRIES,
        generation,
        check_of(container.encode()),
    )
    bank = pack_bank(generation, entries)
    start = bank_at(generation)
    content[start : start + len(bank)] = bank
    return bytes(content)


def _unpack_entries(content: bytes) -> Iterator[tuple[bytes, Amounts]]:
    for uuid, memory, _, cores, soft_cores, flags in _ENTRY.iter_unpack(content):
        amounts = Amounts(
            memory if flags & layout.MEMORY_IS_SET else None,
            bool(flags & layout.MEMORY_IS_PART),
            cores if flags & layout.CORES_ARE_SET else None,
            soft_cores if flags & layout.SOFT_CORES_ARE_SET else None,
        )
        yield uuid, amounts


def _unpack_terms(content: bytes) -> Amounts:
    burst_ns, floor, weight, priority, flags = _TERMS.unpack(content)
    known = flags & layout.PRIORITY_IS_SET and priority < len(Priority)
    terms = Terms(
        Priority(priority) if known else None,
        weight if flags & layout.WEIGHT_IS_SET else None,
        burst_ns if flags & layout.BURST_IS_SET else None,
        floor if flags & layout.FLOOR_IS_SET else None,
    )
    return Amounts(terms=terms, frozen=bool(flags & layout.IS_FROZEN))


def check_of(content: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value
