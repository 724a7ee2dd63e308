"""The pinned header wheels: their list, the download cache, and the headers inside.

Owns lib/api/headers.json, pip and the zip format. Headers go from the wheel straight into memory;
nothing of NVIDIA's is unpacked. Must not know C.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .drivers import version_key
from .errors import HookgenError
from .facts import HeaderSet
from .headers import EVERY_HEADER
from .ir import Source

_INCLUDE = re.compile(r"nvidia/\w+/include/(?P<name>\w+\.h)")
_CUDA_VERSION = re.compile(rb"^#define\s+CUDA_VERSION\s+(\d+)", re.MULTILINE)
_SCHEMA = 1
# The headers are the same for every machine, so that every machine asks for the same file.
_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux1_x86_64")


@dataclass(frozen=True, slots=True)
class Pin:
    """One wheel that must be had, byte for byte; `size` in bytes."""

    header_version: str
    project: str
    version: str
    sha256: str
    size: int

    def source(self) -> Source:
        """What the model records of it."""
        return Source(self.header_version, self.project, self.version, self.sha256)


def read_pins(path: Path) -> tuple[Pin, ...]:
    """The pinned wheels, oldest headers first.

    Raises:
        HookgenError: exit 1; the file is missing or malformed.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["schema"] != _SCHEMA:
            raise ValueError(f"schema {raw['schema']} instead of {_SCHEMA}")
        pins = [Pin(**wheel) for wheel in raw["wheels"]]
        return tuple(sorted(pins, key=lambda pin: (version_key(pin.header_version), pin.project)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HookgenError(
            f"the pins in '{path}' cannot be read",
            str(error),
            "Restore the file, or name the folder that holds it with --api.",
        ) from error


def cache_folder() -> Path:
    """Where wheels are kept: `$XDG_CACHE_HOME/gpufence/headers`, else below `~/.cache`.

    Raises:
        HookgenError: exit 1; neither is set and the user has no home.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):  # the specification tells to ignore a relative path
        return Path(base) / "gpufence" / "headers"
    try:
        return Path.home() / ".cache" / "gpufence" / "headers"
    except RuntimeError as error:
        raise HookgenError(
            "there is no place for the header cache", str(error), "Set XDG_CACHE_HOME or HOME."
        ) from error


def header_sets(pins: Sequence[Pin], cache: Path) -> tuple[HeaderSet, ...]:
    """The headers of each pinned release, oldest first; downloads what the cache lacks.

    Raises:
        HookgenError: exit 1; pip cannot fetch a wheel, or one does not have its pinned hash.
    """
    missing = [pin for pin in pins if not _is_cached(pin, cache)]
    if missing:
        _download(missing, cache)
    files: dict[str, dict[str, bytes]] = {}
    for pin in pins:
        files.setdefault(pin.header_version, {}).update(_headers_in(_cached(pin, cache)))
    return tuple(HeaderSet(version, files[version]) for version in sorted(files, key=version_key))


def installed(cuda_include: Path, nvml_include: Path) -> HeaderSet:
    """The headers of an installed toolkit, with the version that its cuda.h states.

    Raises:
        HookgenError: exit 1; a folder lacks its main header, or cuda.h states no version.
    """
    files = _read_folder(cuda_include, EVERY_HEADER - {"nvml.h"}, "cuda.h")
    files |= _read_folder(nvml_include, frozenset({"nvml.h"}), "nvml.h")
    stated = _CUDA_VERSION.search(files["cuda.h"])
    if stated is None:
        raise HookgenError(
            f"'{cuda_include / 'cuda.h'}' states no CUDA_VERSION",
            "it is not the driver API header",
            "Name the include folder of a CUDA toolkit.",
        )
    number = int(stated[1])
    return HeaderSet(f"{number // 1000}.{number % 1000 // 10}", files)


# Implementation.


def _read_folder(folder: Path, names: Iterable[str], needed: str) -> dict[str, bytes]:
    found = {name: folder / name for name in sorted(names) if (folder / name).is_file()}
    if needed not in found:
        raise HookgenError(
            f"no {needed} in '{folder}'",
            "that is not the include folder of a CUDA toolkit",
            "Name the folders that hold cuda.h and nvml.h.",
        )
    return {name: path.read_bytes() for name, path in found.items()}


def _cached(pin: Pin, cache: Path) -> Path:
    return cache / f"{pin.sha256}.whl"


def _is_cached(pin: Pin, cache: Path) -> bool:
    """Present and unchanged: a damaged file is fetched again, never believed."""
    path = _cached(pin, cache)
    try:
        return path.stat().st_size == pin.size and _sha256(path) == pin.sha256
    except OSError:
        return False


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _headers_in(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        matches = [_INCLUDE.fullmatch(name) for name in archive.namelist()]
        return {
            match["name"]: archive.read(match[0])
            for match in matches
            if match and match["name"] in EVERY_HEADER
        }


def _download(missing: Sequence[Pin], cache: Path) -> None:
    """Fetch wheels with pip and keep those whose hash is pinned."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            for batch in _batches(missing):
                _pip_download(batch, Path(scratch))
            arrived = {_sha256(path): path for path in sorted(Path(scratch).iterdir())}
            for pin in {pin.sha256: pin for pin in missing}.values():
                if pin.sha256 in arrived:
                    arrived[pin.sha256].replace(_cached(pin, cache))
            _refuse_strangers([pin for pin in missing if pin.sha256 not in arrived])
    except OSError as error:
        raise HookgenError(
            f"the header cache '{cache}' cannot be written",
            error.strerror or str(error),
            "Set XDG_CACHE_HOME to a folder that can.",
        ) from error


def _batches(pins: Iterable[Pin]) -> list[list[Pin]]:
    """One version of a project per pip call: it refuses two."""
    batches: list[dict[str, Pin]] = []
    for pin in pins:
        for batch in batches:
            if pin.project not in batch:
                batch[pin.project] = pin
                break
        else:
            batches.append({pin.project: pin})
    return [list(batch.values()) for batch in batches]


def _pip_download(batch: Sequence[Pin], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--retries=1"]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    # Two wheels of one version can suit equally well: the hash tells pip which of them is meant.
    lines = [f"{pin.project}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in batch]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.writelines(lines)
        wanted.flush()
        command += [f"--dest={folder}", f"--requirement={wanted.name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise HookgenError(
            f"pip cannot fetch {batch[0].project}=={batch[0].version}",
            errors[-1].removeprefix("ERROR: "),
            "Run once with a package index in reach (the cache serves later runs), "
            "or name an installed toolkit with --cuda-include.",
        )


def _refuse_strangers(pins: Sequence[Pin]) -> None:
    if pins:
        raise HookgenError(
            f"{pins[0].project}=={pins[0].version} does not have its pinned sha256",
            f"the index served another file than {pins[0].sha256[:16]}... "
            f"({len(pins)} such wheels)",
            "Check the index; if the new file is right, update lib/api/headers.json.",
        )
