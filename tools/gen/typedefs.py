"""From which CUDA version on cuGetProcAddress answers which variant.

Owns the mapping rule: the k-th threshold of the PFN typedef names of a base belongs to its k-th
declared variant, plain and per-thread names apart. Every pair is checked against the prototype.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .drivers import Exports
from .errors import HookgenError
from .facts import RawFunction
from .ir import AliasType, Threshold, TypeDecl
from .naming import split

WORD = re.compile(r"\w+")
_PFN = re.compile(r"PFN_(?P<base>cu\w+?)_v(?P<version>\d+)(?P<pt>_ptds|_ptsz)?")


def thresholds(
    pointers: Mapping[str, tuple[str, ...]],
    functions: Mapping[str, RawFunction],
    types: Mapping[str, TypeDecl],
) -> tuple[Threshold, ...]:
    """Pair PFN typedefs with declared functions.

    Args:
        pointers: typedef name → (return type, parameter types...).
        functions: every declared function.
        types: what the type names of both mean.

    Returns:
        One threshold a function, sorted by base, stream, version.

    Raises:
        HookgenError: exit 1; a base has more typedefs than variants or the reverse, a typedef
            name is not understood, or a prototype differs from its typedef.
    """
    asked = _by_family((_family(name), name) for name in pointers)
    declared = _by_family((_variant(name), name) for name in functions)
    out = []
    for family in sorted(asked.keys() | declared.keys()):
        versions, symbols = asked.get(family, []), declared.get(family, [])
        if len(versions) != len(symbols):
            raise _gap(family, versions, symbols)
        for (cuda_version, pointer), (_, symbol) in zip(versions, symbols, strict=True):
            if not _same_shape(pointers[pointer], functions[symbol].shape, types):
                raise _mismatch(pointer, symbol)
            base, per_thread = family
            stream = split(symbol).stream if per_thread else ""
            out.append(Threshold(base, cuda_version, stream, symbol))
    return tuple(out)


def check_prefixes(functions: Iterable[str], exports: Iterable[Exports]) -> None:
    """The pairing holds for a driver only if it exports the oldest variants of each base.

    Raises:
        HookgenError: exit 1; a driver lacks a variant between two that it exports.
    """
    declared = _by_family((_variant(name), name) for name in functions)
    for driver in exports:
        for family, variants in sorted(declared.items()):
            present = [name in driver.names for _, name in variants]
            if present != sorted(present, reverse=True):
                raise HookgenError(
                    f"driver {driver.driver} exports {family[0]} with a gap",
                    "cuGetProcAddress thresholds are paired with variants from the oldest on",
                    "Check the symbol list; if it is right, the pairing rule is not: see "
                    "tools/gen/typedefs.py.",
                )


# Implementation. A family is (base, per-thread?); ptds and ptsz never meet in one base.

_Family = tuple[str, bool]


def _family(pointer: str) -> tuple[_Family, int]:
    match = _PFN.fullmatch(pointer)
    if match is None:
        raise HookgenError(
            f"typedef '{pointer}' is not understood",
            "its name is not PFN_<base>_v<CUDA version>[_ptds|_ptsz]",
            "Teach tools/gen/typedefs.py about it.",
        )
    return (match["base"], match["pt"] is not None), int(match["version"])


def _variant(symbol: str) -> tuple[_Family, int]:
    name = split(symbol)
    return (name.base, name.stream != ""), name.version


def _by_family(
    items: Iterable[tuple[tuple[_Family, int], str]],
) -> dict[_Family, list[tuple[int, str]]]:
    families: dict[_Family, list[tuple[int, str]]] = {}
    for (family, order), name in items:
        families.setdefault(family, []).append((order, name))
    for members in families.values():
        members.sort()
    return families


def _same_shape(
    left: tuple[str, ...], right: tuple[str, ...], types: Mapping[str, TypeDecl]
) -> bool:
    """Compare with every alias resolved: a PFN says CUDA_MEMCPY2D_v2 where cuda.h has no suffix."""
    return len(left) == len(right) and all(
        ours == theirs or resolve(ours, types) == resolve(theirs, types)
        for ours, theirs in zip(left, right, strict=True)
    )


def resolve(spelling: str, types: Mapping[str, TypeDecl]) -> str:
    """A spelling with every alias replaced by what it stands for."""
    word = WORD.sub(lambda match: _target(match[0], types), spelling)
    return word if word == spelling else resolve(word, types)


def _target(name: str, types: Mapping[str, TypeDecl]) -> str:
    decl = types.get(name)
    return decl.of if isinstance(decl, AliasType) else name


def _gap(
    family: _Family, versions: list[tuple[int, str]], symbols: list[tuple[int, str]]
) -> HookgenError:
    base = family[0] + (" (per thread)" if family[1] else "")
    return HookgenError(
        f"no cuGetProcAddress table for {base}",
        f"the headers have {len(versions)} PFN typedefs for {len(symbols)} variants",
        "Use complete headers of one release (those of 12.4 are known to lack four).",
    )


def _mismatch(pointer: str, symbol: str) -> HookgenError:
    return HookgenError(
        f"{pointer} does not have the prototype of {symbol}",
        "the k-th threshold must belong to the k-th variant",
        "Check the headers; if they are right, the pairing rule is not: see tools/gen/typedefs.py.",
    )
