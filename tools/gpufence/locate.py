"""Where the built library and the simulated driver are, installed or in a checkout.

Owns the folder layout; must not know what anybody does with the files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import ExitCode, ToolError

_PACKAGE = Path(__file__).resolve().parent
# An installed package carries its files inside; a checkout has them where CMake left them.
_CHECKOUT = _PACKAGE.parent.parent
_LIBRARY = (_PACKAGE / "lib" / "libgpufence.so", _CHECKOUT / "build" / "lib" / "libgpufence.so")
_LIMITS = tuple(path.with_name("libgpufence-limits.so") for path in _LIBRARY)
_PRELOADS = (_PACKAGE / "lib", _CHECKOUT / "deploy")
_SIMULATOR = (_PACKAGE / "sim", _CHECKOUT / "build" / "sim")
_API = (_PACKAGE / "api", _CHECKOUT / "lib" / "api")

# ELF header: e_ident[EI_CLASS] = 64 bit, then e_machine at byte 18 (little endian on both).
_ELF_MACHINE = {"x86_64": 62, "aarch64": 183}
# An entry of the dynamic string table: the library's own soname.
_SONAME = b"\0libgpufence.so\0"


def library(explicit: str | None) -> Path:
    """The libgpufence.so to preload.

    Args:
        explicit: the user's own path, or None for the installed or built one.

    Returns:
        An absolute path that the loader will accept.

    Raises:
        ToolError: status 125. The loader only warns about a preload file that it cannot use and
            then runs the program unfenced, so everything it would refuse is refused here.
    """
    path = Path(os.path.abspath(explicit)) if explicit else _first_existing(_LIBRARY)
    if path is None:
        raise ToolError(
            what="libgpufence.so not found",
            why=f"neither {_LIBRARY[0]} nor {_LIBRARY[1]} exists",
            fix="Build it with `ci/build`, or name it with --lib FILE",
            status=ExitCode.WRAPPER_FAILED,
        )
    problem = not_loadable(path) or _another(path) or unnameable(path)
    if problem:
        raise ToolError(
            what=f"library '{explicit or path}' refused",
            why=problem,
            fix="Name a libgpufence.so for this machine with --lib FILE",
            status=ExitCode.WRAPPER_FAILED,
        )
    return path


def addpath(library_path: Path) -> Path:
    """The libgpufence-addpath.so beside the library.

    Raises:
        ToolError: status 1, when there is none.
    """
    return _shipped((library_path.with_name("libgpufence-addpath.so"),), "Build it with `ci/build`")


def limits() -> Path:
    """The libgpufence-limits.so that reads limits for the tools.

    Raises:
        ToolError: status 1, when there is none.
    """
    return _shipped(_LIMITS, "Build it with `ci/build`")


def preload_file(library_path: Path, *, with_addpath: bool) -> Path:
    """The text for a container's /etc/ld.so.preload, with the paths that `gpufence cdi` mounts.

    Beside the library, where somebody installed both, else the package's own.

    Raises:
        ToolError: status 1, when the installation is not whole.
    """
    name = "ld.so.preload.addpath" if with_addpath else "ld.so.preload"
    folders = (library_path.parent, *_PRELOADS)
    return _shipped(tuple(folder / name for folder in folders), "Install gpufence again")


def _shipped(candidates: tuple[Path, ...], fix: str) -> Path:
    path = _first_existing(candidates)
    if path is None:
        raise ToolError(
            what=f"{candidates[0].name} not found",
            why=f"there is no {' and no '.join(map(str, candidates))}",
            fix=fix,
        )
    return path


def simulator() -> Path:
    """The folder with the simulated libcuda.so.1 and libnvidia-ml.so.1.

    Raises:
        ToolError: status 125, when there is none, or when LD_LIBRARY_PATH cannot name it.
    """
    folder = _first_existing(tuple(path / "libcuda.so.1" for path in _SIMULATOR))
    if folder is None:
        raise ToolError(
            what="simulated driver not found",
            why=f"neither {_SIMULATOR[0]} nor {_SIMULATOR[1]} holds a libcuda.so.1",
            fix="Build it with `ci/build`",
            status=ExitCode.WRAPPER_FAILED,
        )
    problem = unnameable(folder.parent)
    if problem:
        raise ToolError(
            what=f"simulated driver in '{folder.parent}' refused",
            why=problem,
            fix="Move the installation to another path",
            status=ExitCode.WRAPPER_FAILED,
        )
    return folder.parent


def known_drivers() -> list[str]:
    """Driver versions that the simulator can imitate, oldest first; [] if no list is shipped."""
    folder = _first_existing(tuple(path / "symbols" for path in _API))
    if folder is None:
        return []
    names = (path.name.removeprefix("libcuda-") for path in folder.glob("libcuda-*.txt"))
    versions = {name.removesuffix(".txt") for name in names if not name.endswith("-arm64.txt")}
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def _first_existing(candidates: tuple[Path, ...]) -> Path | None:
    return next((path for path in candidates if path.exists()), None)


def not_loadable(path: Path) -> str:
    """Why the loader of this machine could not map the file; "" if it can."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        with path.open("rb") as file:
            start = file.read(20)
    except OSError as error:
        return (error.strerror or "unreadable").lower()
    if start[:4] != b"\x7fELF":
        return "not an ELF file"
    if start[4:5] != b"\x02":
        return "a 32-bit library"
    machine = os.uname().machine
    if int.from_bytes(start[18:20], "little") != _ELF_MACHINE.get(machine):
        return f"built for another machine than this {machine}"
    return ""


def is_library(path: Path) -> bool:
    """Whether the file, whatever it is called, is a libgpufence.so for this machine."""
    return not not_loadable(path) and not _another(path)


def _another(path: Path) -> str:
    """Says so when the file, which can be read, is not a libgpufence.so; else ""."""
    return "" if _SONAME in path.read_bytes() else "another library"


def unnameable(path: Path) -> str:
    """Why LD_PRELOAD and LD_LIBRARY_PATH cannot hold the path; '' if they can (ld.so(8))."""
    for character, meaning in ((":", "a colon"), (" ", "a space"), (";", "a semicolon")):
        if character in str(path):
            return f"its path has {meaning}, which the loader takes for a separator"
    return "its path has a '$', which the loader expands" if "$" in str(path) else ""
