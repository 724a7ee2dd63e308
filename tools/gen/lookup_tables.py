"""A perfect hash over symbol names: hash and displace over 32-bit FNV-1a.

Owns the construction of the table that `lookup.h` searches: one pass over the name, one
displacement byte, one slot, one comparison. `templates/lookup.h.j2` holds the same arithmetic in
C++. Must not know what a symbol is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FNV_OFFSET = 0x811C9DC5
FNV_PRIME = 0x01000193
EMPTY = 0xFFFF
_MASK = 0xFFFFFFFF
_MAX_DISPLACEMENT = 256


@dataclass(frozen=True, slots=True)
class PerfectHash:
    """`slots[slot_of(hash)]` is the position of the name with that hash, or EMPTY.

    `len(displacements)` and `len(slots)` are powers of two.
    """

    displacements: tuple[int, ...]
    slots: tuple[int, ...]

    @property
    def slot_shift(self) -> int:
        """How far a displaced hash is shifted right to index `slots`."""
        return 32 - (len(self.slots).bit_length() - 1)

    def find(self, name: str, names: Sequence[str]) -> int:
        """The position of `name` in `names`, or EMPTY: what the C++ search must answer."""
        hashed = fnv1a(name)
        displacement = self.displacements[hashed & (len(self.displacements) - 1)]
        position = self.slots[_slot(hashed, displacement, self.slot_shift)]
        return position if position != EMPTY and names[position] == name else EMPTY


def fnv1a(name: str) -> int:
    """The 32-bit FNV-1a hash of the name's ASCII bytes."""
    value = FNV_OFFSET
    for byte in name.encode("ascii"):
        value = ((value ^ byte) * FNV_PRIME) & _MASK
    return value


def build(names: Sequence[str]) -> PerfectHash:
    """Place every name in a slot of its own, buckets with most names first.

    Args:
        names: distinct ASCII names, fewer than EMPTY.

    Raises:
        ValueError: a duplicate name, or (never seen) two names with one hash.
    """
    hashes = [fnv1a(name) for name in names]
    if len(set(hashes)) != len(names):
        raise ValueError("two symbol names are equal or share a 32-bit hash")
    slot_count = _power_of_two(2 * len(names))
    while True:
        table = _place(hashes, _power_of_two(max(1, len(names) // 3)), slot_count)
        if table is not None:
            return table
        slot_count *= 2


# Implementation.


def _power_of_two(least: int) -> int:
    return 1 << max(0, (least - 1).bit_length())


def _slot(hashed: int, displacement: int, shift: int) -> int:
    """An odd factor permutes the 32-bit values, so each displacement scatters a bucket anew."""
    return ((hashed * (2 * displacement + 1)) & _MASK) >> shift


def _place(hashes: Sequence[int], bucket_count: int, slot_count: int) -> PerfectHash | None:
    buckets: list[list[int]] = [[] for _ in range(bucket_count)]
    for position, hashed in enumerate(hashes):
        buckets[hashed & (bucket_count - 1)].append(position)
    shift = 32 - (slot_count.bit_length() - 1)
    displacements = [0] * bucket_count
    slots = [EMPTY] * slot_count
    for number in sorted(range(bucket_count), key=lambda n: (-len(buckets[n]), n)):
        for displacement in range(_MAX_DISPLACEMENT):
            wanted = [_slot(hashes[p], displacement, shift) for p in buckets[number]]
            if len(set(wanted)) == len(wanted) and all(slots[w] == EMPTY for w in wanted):
                break
        else:
            return None
        displacements[number] = displacement
        for position, slot in zip(buckets[number], wanted, strict=True):
            slots[slot] = position
    return PerfectHash(tuple(displacements), tuple(slots))
