"""Tells a driver library from its look-alikes, and which driver it belongs to, without running it.

Owns the signs of stubs and shims and the search for the version. Must not know the API model.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UnreadableError
from .rawfile import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .vet import Vetted

SONAMES = {"cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}

# Functions that every driver of the library has had; they speak where the soname does not.
_TELLTALE = {"cuda": "cuDriverGetVersion", "nvml": "nvmlSystemGetDriverVersion"}

# Look-alikes are small; the real ones have 1.8 MB and more.
_SMALL_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20

_IN_NAME = re.compile(r"\.so\.(\d{3}\.\d{2,3}(?:\.\d{2})?)$")
# The tail of a version first, the branch before it second: a pattern that starts with a literal
# scans libcuda's 28 MB in 10 ms, one that starts with digits takes 900 ms.
_TAIL = re.compile(rb"\.\d{2,3}(?:\.\d{2})?(?=\0)")
# libnvidia-ml prefixes its own copy with the CUDA major: 12.550.163.01.
_BRANCH = re.compile(rb"(?:^|[^0-9.])(1\d\.)?([3-9]\d{2})$")
_LONGEST = 24


def version_key(version: str) -> tuple[int, ...]:
    """Order driver and header versions by number: 550.54.15 < 550.163.01."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def library_of(path: Path, vetted: Vetted) -> str:
    """Which driver library this is: cuda or nvml.

    Raises:
        UnreadableError: it is neither, or only looks like one (a toolkit stub, WSL's shim).
    """
    library = next((key for key, name in SONAMES.items() if _belongs(vetted.soname, name)), "")
    if not library and not vetted.soname:
        library = next((key for key, name in _TELLTALE.items() if name in vetted.exported), "")
    if not library:
        name = f"its soname is '{vetted.soname}'" if vetted.soname else "it has no soname"
        raise UnreadableError(
            f"it is no driver library: {name}", f"Name a {' or '.join(SONAMES.values())}."
        )
    _refuse_look_alikes(path, library, vetted)
    return library


def _belongs(soname: str, wanted: str) -> bool:
    """libcuda.so, libcuda.so.1 and libcuda.so.1.1 are the same library."""
    stem = wanted.removesuffix(".1")
    return soname == stem or soname.startswith(stem + ".")


def _refuse_look_alikes(path: Path, library: str, vetted: Vetted) -> None:
    data = path.read_bytes() if path.stat().st_size < _SMALL_BYTES else b""
    names_another = b"libcuda.so.1.1\0" in data and vetted.soname != "libcuda.so.1.1"
    if b"dxcore" in data or names_another:
        raise UnreadableError(
            "it is WSL's shim, which loads the real driver",
            f"Name {SONAMES[library]}.1 below /usr/lib/wsl/drivers.",
            look_further=True,
        )
    # A real libcuda has always exported the debugger's variables; the toolkit's link stub does not.
    # (Every libcuda holds the text: it is the name of an error, and a simulated driver is small.)
    debugger = any(name.startswith("cudbg") for name in vetted.exported)
    if not debugger if library == "cuda" else b"is a stub library" in data:
        raise UnreadableError(
            "it is the CUDA toolkit's stub, made for linking only",
            "Name the driver's own library; stubs must not be on LD_LIBRARY_PATH.",
        )


def driver_version(path: Path) -> str:
    """The driver's version, from the file's real name, else from its text; "" if neither tells."""
    named = _IN_NAME.search(path.resolve().name)
    if named:
        return named.group(1)
    plain: set[str] = set()
    prefixed: set[str] = set()
    for chunk in _chunks(path):
        for tail in _TAIL.finditer(chunk):
            branch = _BRANCH.search(chunk[max(0, tail.start() - 7) : tail.start()])
            if branch:
                found = (branch.group(2) + tail.group()).decode()
                (prefixed if branch.group(1) else plain).add(found)
    # libcuda also names older drivers that it can talk to: its own is the newest.
    return max(prefixed or plain, key=version_key, default="")


def _chunks(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        for start in range(0, file.size, _CHUNK_BYTES):
            length = min(_CHUNK_BYTES + _LONGEST, file.size - start)
            yield file.read(start, length, "the file")
