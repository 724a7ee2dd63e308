"""What cuGetProcAddress must answer, derived from the API model's thresholds.

Knows the rule; must not know how answers are obtained. Rows have the shape that the program
lookup_table prints: (entry, name, flags) and the answer for every version it asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOT_FOUND_V1 = "500/-/-"
REFUSED = "1/-/-"
UNKNOWN_V2 = "0/1/null"
TOO_LOW_V2 = "0/2/null"

PER_THREAD_FLAG = 2
FIRST_BAD_FLAG = 4
# From CUDA 13.0 on a version above the driver's own is refused; read on a 580.
FIRST_DRIVER_THAT_REFUSES = 13000

Row = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Table:
    """Thresholds of one driver: base name to ascending (CUDA version, symbol) pairs."""

    plain: Mapping[str, Sequence[tuple[int, str]]]
    per_thread: Mapping[str, Sequence[tuple[int, str]]]
    driver_version: int

    def answer(self, entry: int, name: str, version: int, flags: int) -> str:
        """RC/STATUS/SYMBOL as the program prints it; entry 1 has four arguments, 2 has five."""
        unsigned = version & 0xFFFFFFFF
        if flags >= FIRST_BAD_FLAG or self._refuses(version):
            return REFUSED
        pairs: Sequence[tuple[int, str]] = ()
        if flags & PER_THREAD_FLAG:
            pairs = self.per_thread.get(name, ())
        pairs = pairs or self.plain.get(name, ())
        if not pairs:
            return NOT_FOUND_V1 if entry == 1 else UNKNOWN_V2
        reached = [symbol for threshold, symbol in pairs if threshold <= unsigned]
        if not reached:
            return NOT_FOUND_V1 if entry == 1 else TOO_LOW_V2
        return f"0/{'-' if entry == 1 else '0'}/{reached[-1]}"

    def _refuses(self, version: int) -> bool:
        # Signed, unlike the comparison with thresholds: -1 is the newest version to every driver.
        return FIRST_DRIVER_THAT_REFUSES <= self.driver_version < version


def table_of(model: Mapping[str, Any], exported: set[str], driver_version: int) -> Table:
    """The thresholds of lib/api/cuda.json, cut to what a driver exports."""
    plain: dict[str, list[tuple[int, str]]] = {}
    per_thread: dict[str, list[tuple[int, str]]] = {}
    for entry in model["thresholds"]:
        if entry["symbol"] in exported:
            target = per_thread if entry["stream"] else plain
            target.setdefault(entry["base"], []).append((entry["cuda_version"], entry["symbol"]))
    for pairs in (*plain.values(), *per_thread.values()):
        pairs.sort()
    return Table(plain, per_thread, driver_version)


def asked_versions(source: str) -> list[int]:
    """The versions that lookup_table asks, in its order, out of its source text."""
    found = re.search(r"kVersions\[\] = \{(.*?)\}", source, re.DOTALL)
    if found is None:
        raise ValueError("lookup_table.c no longer holds kVersions")
    named = {"INT32_MAX": 2**31 - 1, "INT32_MIN": -(2**31)}
    words = found[1].replace("\n", " ").split(",")
    return [named.get(word.strip()) or int(word) for word in words if word.strip()]


def decode(output: str, versions: Sequence[int]) -> tuple[int, dict[Row, list[str]]]:
    """The program's output: the driver's CUDA version, and the answers row by row."""
    driver_version = -1
    rows: dict[Row, list[str]] = {}
    for line in output.splitlines():
        kind, *words = line.split("\t")
        if kind == "driver":
            driver_version = int(words[0])
        elif kind == "lookup":
            changes = dict(word.split("=", 1) for word in words[3:])
            answers: list[str] = []
            for version in versions:
                answers.append(changes.get(str(version)) or answers[-1])
            rows[(int(words[0]), words[1], int(words[2]))] = answers
    return driver_version, rows
