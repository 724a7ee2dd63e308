"""What cuGetProcAddress must answer, derived from the model and a driver's list of exports.

An independent second writing of the rule, for comparison with the simulated driver, with real ones
and with the library: the k-th threshold of a base means its k-th variant, cut to what the driver
exports. Standard library only, so that a GPU run can use it too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

API = Path(__file__).resolve().parents[2] / "lib" / "api"

STRICT_CUDA_VERSION = 13000  # drivers from here on refuse a version above their own
UINT32 = 1 << 32
PER_THREAD = 2

# Strings that lie in libcuda beside the names of functions, and near misses.
STRANGERS = (
    "",
    "cuBinaryFree",
    "cuCompilePtx",
    "cuMemAllo",
    "cuMemAllocX",
    "cuMemPeerRegister",
    "cuSurfRefCreate",
    "cumemalloc",
    "malloc",
    "nvmlInit",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as lookup_table prints it: `-` for what was not written."""

    rc: int
    status: str
    symbol: str

    @staticmethod
    def parse(text: str) -> Answer:
        """Read `RC/STATUS/SYMBOL`."""
        rc, status, symbol = text.split("/")
        return Answer(int(rc), status, symbol)


REFUSED = Answer(1, "-", "-")


@dataclass(frozen=True, slots=True)
class Query:
    """One question: entry point 1 (four arguments) or 2 (five), base name, flags, version."""

    entry: int
    name: str
    flags: int
    version: int


@dataclass(frozen=True, slots=True)
class Rule:
    """The answers of one driver.

    `plain` and `per_thread` map a base to its (threshold, symbol) pairs, ascending.
    """

    cuda_version: int
    plain: dict[str, tuple[tuple[int, str], ...]]
    per_thread: dict[str, tuple[tuple[int, str], ...]]

    def answer(self, query: Query) -> Answer:
        """What the driver says to one question. Negative versions are the newest to all of them."""
        too_new = self.cuda_version >= STRICT_CUDA_VERSION and query.version > self.cuda_version
        version = query.version % UINT32
        if query.flags > 3 or too_new:
            return REFUSED
        pairs = self.plain.get(query.name, ())
        if query.flags & PER_THREAD:
            pairs = self.per_thread.get(query.name, pairs)
        reached = [symbol for threshold, symbol in pairs if threshold <= version]
        if reached:
            return Answer(0, "-" if query.entry == 1 else "0", reached[-1])
        if query.entry == 1:
            return Answer(500, "-", "-")
        return Answer(0, "2" if pairs else "1", "null")


def rule_for(exports: Set[str], cuda_version: int) -> Rule:
    """The rule of a driver that exports these names and calls itself `cuda_version`."""
    model = json.loads((API / "cuda.json").read_text(encoding="utf-8"))
    variants: dict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)
    for function in model["functions"]:
        key = (function["base"], bool(function["stream"]))
        variants[key].append((function["version"], function["name"]))
    thresholds: dict[tuple[str, bool], list[int]] = defaultdict(list)
    for row in model["thresholds"]:
        thresholds[row["base"], bool(row["stream"])].append(row["cuda_version"])

    tables: dict[bool, dict[str, tuple[tuple[int, str], ...]]] = {False: {}, True: {}}
    for (base, per_thread), versions in thresholds.items():
        declared = [name for _, name in sorted(variants[base, per_thread])]
        pairs = zip(sorted(versions), declared, strict=True)
        present = tuple((version, name) for version, name in pairs if name in exports)
        if present:
            tables[per_thread][base] = present
    return Rule(cuda_version, tables[False], tables[True])


def names_to_ask() -> list[str]:
    """Every base, every suffixed name, every export without a prototype, and strangers."""
    model = json.loads((API / "cuda.json").read_text(encoding="utf-8"))
    names = {row["base"] for row in model["thresholds"]}
    names |= {entry["name"] for kind in ("functions", "untyped") for entry in model[kind]}
    return sorted(names | set(STRANGERS))


def exports_of(driver: str, library: str = "libcuda") -> frozenset[str]:
    """The names that a listed driver ("550.163.01") exports."""
    listing = API / "symbols" / f"{library}-{driver}.txt"
    return frozenset(listing.read_text(encoding="utf-8").split())


def newest_listed(branch: str) -> str:
    """The newest driver of a branch ("550") with a list for this architecture's common names."""
    pattern = re.compile(rf"libcuda-({branch}\.[\d.]+)\.txt")
    found = [m[1] for p in (API / "symbols").iterdir() if (m := pattern.fullmatch(p.name))]
    return max(found, key=lambda version: [int(part) for part in version.split(".")])


def answers(table: str) -> Iterator[tuple[Query, Answer]]:
    """Read lookup_table's output back: one answer for each version at which it changes."""
    for line in table.splitlines():
        kind, *cells = line.split("\t")
        if kind != "lookup":
            continue
        entry, name, flags, *changes = cells
        for change in changes:
            version, _, text = change.partition("=")
            query = Query(int(entry), name, int(flags), int(version))
            yield query, Answer.parse(text)
