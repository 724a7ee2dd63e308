"""Single texts of limits: the library's grammars by name, and how a text is quoted.

A text is a string of Latin-1 characters, one for each byte. UUIDs and indices are read here as well
as in the library: the tools' own files name GPUs by them.
"""

from __future__ import annotations

import re

from . import library
from .library import TextError as TextError

THOUSAND = 1000
PERCENT_STEPS = 10**9  # a part of a device's memory is counted in billionths of a percent

_UUID = re.compile(
    r"(?:gpu-|mig-)?"
    r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})",
    re.IGNORECASE | re.ASCII,
)
_LONGEST_QUOTE = 60


class Size(tuple[int, bool]):
    """Bytes, or a part of a device's memory in billionths of a percent; 0 means no limit."""

    __slots__ = ()

    @property
    def amount(self) -> int:
        """As the class says."""
        return self[0]

    @property
    def percent_of_device(self) -> bool:
        """Whether it is a part."""
        return self[1]


def quote(text: str) -> str:
    """A text for a message: printable ASCII, cut after 60 characters."""
    shown = "".join(c if " " <= c <= "~" else "?" for c in text[:_LONGEST_QUOTE])
    return shown + "..." if len(text) > _LONGEST_QUOTE else shown


def parse_size(text: str) -> Size:
    """A memory limit as bytes or a part of the device.

    Raises:
        TextError: as library.parse.
    """
    return Size(library.parse("size", text))


def parse_percent(text: str) -> int:
    """A share of GPU time, in thousandths of a percent, cut.

    Raises:
        TextError: as library.parse.
    """
    return int(library.parse("percent", text))


def parse_oversubscribe(text: str) -> int:
    """A switch, or a ratio in thousandths; 1: on without a ratio, 0: off.

    Raises:
        TextError: as library.parse.
    """
    return int(library.parse("oversubscribe", text))


def parse_switch(text: str) -> bool:
    """1, true, yes, on; 0, false, no, off; in any case.

    Raises:
        TextError: as library.parse.
    """
    return bool(library.parse("switch", text))


def parse_weight(text: str) -> int:
    """A part of GPU time that is free, a whole number.

    Raises:
        TextError: as library.parse.
    """
    return int(library.parse("weight", text))


def parse_burst(text: str) -> int:
    """A duration in nanoseconds, cut.

    Raises:
        TextError: as library.parse.
    """
    return int(library.parse("burst", text))


def parse_floor(text: str) -> int:
    """A share in thousandths of a percent, cut.

    Raises:
        TextError: as library.parse.
    """
    return int(library.parse("floor", text))


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of "GPU-...", "MIG-..." or a bare UUID.

    Raises:
        TextError: for anything else.
    """
    match = _UUID.fullmatch(text)
    if match is None:
        raise TextError("is not a GPU UUID", "Write GPU-<uuid> as nvidia-smi -L prints it")
    return bytes.fromhex("".join(match.groups()))


def parse_index(text: str) -> int | None:
    """Digits only, below 10000, without a leading zero; None for anything else."""
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,3}", text) else None


def part_of(total_bytes: int, percent_steps: int) -> int:
    """floor(total_bytes x percent / 100), saturated at 2^64 - 1: PartOf in config/grammar.cpp.

    Of what a limits file says, for each GPU of each container that `status` and `top` show.
    """
    return min(total_bytes * percent_steps // (100 * PERCENT_STEPS), 2**64 - 1)
