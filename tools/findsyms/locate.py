"""Finds a library by soname where ld.so would, then where drivers hide from ld.so.

Owns the search order and the format of ld.so.cache. Must not know what a driver exports.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_SONAMES = ("libcuda.so.1", "libnvidia-ml.so.1")

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER = struct.Struct("<20sII20x")
_CACHE_ENTRY = struct.Struct("<iIIIQ")

# Below the root; {triplet} as in multiarch folders. What each is for stands beside it.
_SYSTEM_FOLDERS = ("lib/{triplet}", "usr/lib/{triplet}", "lib64", "usr/lib64", "lib", "usr/lib")
_DRIVER_FOLDERS = (
    "usr/local/nvidia/lib64",  # NVIDIA's container toolkit and Kubernetes device plugins
    "usr/local/nvidia/lib",
    "run/nvidia/driver/usr/lib/{triplet}",  # the GPU operator's driver container
    "run/nvidia/driver/usr/lib64",
    "home/kubernetes/bin/nvidia/lib64",  # Container-Optimized OS
    "var/lib/nvidia/lib64",
    "usr/lib/{triplet}/nvidia/current",  # Debian
    "usr/lib/{triplet}/nvidia",
    "usr/lib64/nvidia",
    "usr/lib/nvidia",
    "run/opengl-driver/lib",  # NixOS
    "usr/local/cuda/compat",  # forward compatibility packages
    "usr/lib/wsl/lib",
    "usr/lib/wsl/drivers/*",  # the real driver under WSL, named libcuda.so.1.1
)


def is_path(library: str) -> bool:
    """Whether a LIB argument names a file; like ld.so, only a slash says so (lists excepted)."""
    return "/" in library or library.endswith(".txt")


def candidates(
    soname: str, machine: str, environ: Mapping[str, str], root: Path = Path("/")
) -> Iterator[Path]:
    """Existing files for a soname, best first.

    Args:
        soname: a name without slash.
        machine: architecture whose multiarch folders are searched.
        environ: where LD_LIBRARY_PATH is looked up.
        root: what stands for `/`; tests pass a made-up tree.
    """
    seen: set[Path] = set()
    for path in _all_places(soname, machine, environ, root):
        if path not in seen and os.path.lexists(path):  # False, too, for a name that is none
            seen.add(path)
            yield path


def _all_places(
    soname: str, machine: str, environ: Mapping[str, str], root: Path
) -> Iterator[Path]:
    listed = environ.get("LD_LIBRARY_PATH", "")
    for folder in listed.replace(";", ":").split(":") if listed else ():
        yield Path(folder) / soname
    for target in cached(soname, root / "etc/ld.so.cache"):
        yield root / target.lstrip("/")
    for folder in (*_SYSTEM_FOLDERS, *_DRIVER_FOLDERS):
        pattern = folder.format(triplet=f"{machine}-linux-gnu")
        found = sorted(root.glob(pattern)) if "*" in pattern else [root / pattern]
        for place in found:
            yield place / soname
            if "wsl" in pattern:
                yield place / f"{soname}.1"


def cached(soname: str, cache: Path) -> list[str]:
    """Targets of a soname in an ld.so.cache, in the cache's order; empty without a readable cache.

    Source: glibc's sysdeps/generic/dl-cache.h. Offsets count from the start of the new-format
    header, which follows an old-format table on some systems.
    """
    try:
        data = cache.read_bytes()
    except OSError:
        return []
    start = data.find(_CACHE_MAGIC)
    if start < 0 or len(data) < start + _CACHE_HEADER.size:
        return []
    data = data[start:]
    _, count, _ = _CACHE_HEADER.unpack_from(data)
    table = data[_CACHE_HEADER.size : _CACHE_HEADER.size + count * _CACHE_ENTRY.size]
    table = table[: len(table) - len(table) % _CACHE_ENTRY.size]
    wanted = os.fsencode(soname) + b"\0"
    return [
        data[value : data.find(b"\0", value)].decode(errors="replace")
        for _, key, value, _, _ in _CACHE_ENTRY.iter_unpack(table)
        if data.startswith(wanted, key)
    ]
