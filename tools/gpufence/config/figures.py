"""Amounts for people: bytes, shares and durations in the fewest words that stay true."""

from __future__ import annotations

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size(amount_bytes: int) -> str:
    """Bytes to three digits or so: "1.5 GiB", "518 MiB", "0"."""
    for unit_bytes, unit in _UNITS:
        if amount_bytes >= unit_bytes:
            return f"{_short(amount_bytes / unit_bytes)} {unit}"
    return f"{amount_bytes} bytes" if amount_bytes else "0"


def exact(amount_bytes: int) -> str:
    """Bytes as a limit is written: in the largest unit that leaves no fraction."""
    for unit_bytes, unit in _UNITS:
        if amount_bytes and amount_bytes % unit_bytes == 0:
            return f"{amount_bytes // unit_bytes} {unit}"
    return f"{amount_bytes} bytes"


def share(millipercent: int) -> str:
    """Of a GPU's time: "40 %"."""
    return f"{millipercent / 1000:g} %"


def duration(ns: int) -> str:
    """Nanoseconds: "1.2 s", "340 ms"."""
    if ns >= 1_000_000_000:
        return f"{_short(ns / 1e9)} s"
    return f"{_short(ns / 1e6)} ms"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")
