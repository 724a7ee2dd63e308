"""What of a process's surroundings decides whether a limit can hold: C library, files, folders.

Reads /proc and the process's own view of the disk, and changes nothing. Must not know the driver
(gpu_checks.py), namespaces, nor how findings are printed (doctor.py).
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from gpufence import locate
from gpufence.config import limits as readings
from gpufence.config.applies import amount_text, gpu_name, terms_of
from gpufence.config.limits import Claims
from gpufence.config.sources import ConfigError, System
from gpufence.container import containers, lifetimes
from gpufence.errors import ToolError
from gpufence.machine.process import MappedFile, Process
from gpufence.state import limits_file, places

from .finding import Collected, Finding, failed

PRELOAD_FILE = "/etc/ld.so.preload"
_LIBRARY = "libgpufence.so"

# A region and a time file, as far as they are filled: less than this is soon full.
_ENOUGH_BYTES = 16 << 20

_NEEDED = re.compile(rb"(?<=\0)GLIBC_(2\.[0-9]+|ABI_DT_RELR)(?:\.[0-9]+)?(?=\0)")
_LIBC_VERSION = re.compile(rb"GNU C Library [^\n]{0,80}? version ([0-9]+\.[0-9]+)")
_DT_RELR_FLOOR = (2, 36)

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """A process and where its view of the disk begins ("" for our own)."""

    subject: Process
    root: str

    @staticmethod
    def of(subject: Process) -> Scene:
        """As this process sees it."""
        own = subject.pid == os.getpid()
        return Scene(subject, "" if own else f"/proc/{subject.pid}/root")

    def path(self, inside: str) -> Path:
        """Where we find what the process calls `inside`."""
        return Path(self.root + inside)

    def mapped(self, listed: str) -> Path:
        """A file of /proc/PID/maps; of a process that only changed its root, by our own name."""
        inside = self.path(listed)
        return inside if inside.exists() else Path(listed)

    def variables(self) -> dict[str, str]:
        """Its environment when it was started; of two equal names the first counts."""
        pairs = [text.partition("=") for text in self.subject.environment]
        return {name: value for name, _, value in reversed(pairs)}


def glibc(scene: Scene, library: str | None) -> Finding:
    """The library's floor against the C library of the process."""
    found = Collected("glibc")
    here = _libc_version(scene)
    path = scene.mapped(library) if library else _installed()
    floor = _glibc_floor(path)
    found.facts |= {"here": _dotted(here), "needed": _dotted(floor)}
    needs = f"the library needs {_dotted(floor)}" if floor else "no library to compare with"
    found.told.append(f"{_dotted(here) or 'not glibc'} here, {needs}")
    if here is None:
        found.notes.append(
            failed(
                "no glibc",
                f"process {scene.subject.pid} has no GNU C library, and only its loader preloads",
                "Use an image with glibc",
            )
        )
    elif floor and here < floor:
        found.problems.append(
            failed(
                f"glibc {_dotted(here)} is too old",
                f"{path} needs {_dotted(floor)}, so the loader warns and runs programs unfenced",
                "Use a release build of the library, made against glibc 2.17, or a newer image",
            )
        )
    return found.done()


def _installed() -> Path | None:
    try:
        return locate.library(None)
    except ToolError:  # only to compare with; its absence is told elsewhere
        return None


def _glibc_floor(path: Path | None) -> Version | None:
    """The newest version among the names that the library's imports carry."""
    try:
        names = _NEEDED.findall(path.read_bytes()) if path else []
    except OSError:
        return None
    floors = [
        _DT_RELR_FLOOR if name.startswith(b"ABI") else _version(name.decode()) for name in names
    ]
    return max(floors, default=None)


def _libc_version(scene: Scene) -> Version | None:
    """The GNU C library's version, from its own text; None: there is another."""
    libc = next(
        (f for f in scene.subject.files if f.name == "libc.so.6" or f.name.startswith("libc-2.")),
        None,
    )
    if libc is None:
        return None
    try:
        match = _LIBC_VERSION.search(scene.mapped(libc.path).read_bytes())
    except OSError:
        return None
    return _version(match[1].decode()) if match else None


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _dotted(version: Version | None) -> str | None:
    return ".".join(map(str, version)) if version else None


def preload(scene: Scene) -> Finding:
    """The system-wide list of preloads: present, readable, and every entry usable."""
    found = Collected("preload")
    path = scene.path(PRELOAD_FILE)
    try:
        text = os.fsdecode(path.read_bytes())
    except FileNotFoundError:
        found.facts |= {"path": PRELOAD_FILE, "present": False, "entries": []}
        found.told.append(f"no {PRELOAD_FILE}; LD_PRELOAD alone decides")
        return found.done()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        found.facts |= {"path": PRELOAD_FILE, "present": True, "entries": None}
        found.told.append(f"{PRELOAD_FILE} cannot be read: {why}")
        found.problems.append(
            failed(
                f"{PRELOAD_FILE} cannot be read",
                f"{why}, so the loader passes it over and programs run unfenced",
                "Make it a regular file that everybody may read",
            )
        )
        return found.done()
    if not path.stat().st_mode & stat.S_IROTH:
        found.problems.append(
            failed(
                f"{PRELOAD_FILE} is not for everybody",
                "programs of users who may not read it run unfenced",
                "Make it readable with mode 0644",
            )
        )
    entries = parse_preload_file(text)
    states = {entry: _entry_state(scene, entry) for entry in entries}
    found.facts |= {
        "path": PRELOAD_FILE,
        "present": True,
        "entries": [{"path": entry, "problem": why or None} for entry, why in states.items()],
    }
    found.told.append(f"{PRELOAD_FILE} names {', '.join(entries) or 'nothing'}")
    for entry, why in states.items():
        if why:
            complaint = failed(
                f"{PRELOAD_FILE} names '{entry}'",
                f"{why}; the loader warns once per program and runs it without",
                "Mount the file there, for this machine, or take the line away",
            )
            ours = entry.rpartition("/")[2] == _LIBRARY
            (found.problems if ours else found.notes).append(complaint)
    return found.done()


def preloads(scene: Scene) -> tuple[str, ...]:
    """What the process was told to preload, by its variable and by the file."""
    try:
        text = os.fsdecode(scene.path(PRELOAD_FILE).read_bytes())
    except OSError:
        text = ""
    return (*scene.subject.preloads, *parse_preload_file(text))


def parse_preload_file(text: str) -> tuple[str, ...]:
    """Entries as the loader reads them: parted by blanks and colons, '#' begins a comment."""
    lines = (line.split("#", 1)[0] for line in text.split("\n"))
    return tuple(entry for line in lines for entry in re.split(r"[ \t:]+", line) if entry)


def _entry_state(scene: Scene, entry: str) -> str:
    """Why the loader cannot use an entry; "" if it can, or if that cannot be told."""
    if "$" in entry or "/" not in entry:
        return ""
    path = scene.path(entry)
    try:
        if not path.exists():
            return "it does not exist"
        readable = path.stat().st_mode & stat.S_IROTH
    except OSError as error:
        return (error.strerror or str(error)).lower()
    why = locate.not_loadable(path)
    return f"it is {why}" if why else "" if readable else "not everybody may read it"


def limits(scene: Scene) -> tuple[Finding, Claims | None]:
    """What the process is limited to, as the library would read it; the claims for other checks."""
    found = Collected("limits")
    system = System(scene.root, tuple(scene.subject.environment))
    try:
        claims = readings.read(system)
    except ConfigError as error:
        head, _, fix = str(error).rpartition(". ")
        found.facts |= {"readable": False, "limits": []}
        found.told.append("refused")
        found.problems.append(failed("limits refused, so cuInit fails", head, fix))
        return found.done(), None
    rows = [
        (row.kind.name.lower(), gpu_name(row.names), amount_text(row.applies), row.applies.source)
        for row in claims.rows
        if row.applies
    ]
    parts = ("kind", "gpu", "amount", "source")
    found.facts |= {
        "readable": True,
        "limits": [dict(zip(parts, row, strict=True)) for row in rows],
    }
    found.told += [f"{kind} of {gpu}: {amount}  {source}" for kind, gpu, amount, source in rows]
    terms = terms_of(claims)
    keys = ("term", "value", "source")
    found.facts["terms"] = [dict(zip(keys, row, strict=True)) for row in terms]
    found.told += [f"{called}: {text}  {source}" for called, text, source in terms]
    if claims.hypervisor:
        found.told.append(f"asked of vgpu.rs's hypervisor at {claims.hypervisor}, at cuInit")
    elif not rows:
        found.told.append("none is set")
    fix = "See `gpufence config --explain`"
    found.notes += [failed("limits", note.rstrip("."), fix) for note in claims.notes]
    return found.done(), claims


def folders(scene: Scene, claims: Claims | None) -> Finding:
    """Where the container's processes keep their ledger, and containers take turns."""
    found = Collected("folders")
    named = claims.state_folder if claims else ""
    states = {named: _folder_state(scene, named)} if named else _usual_states(scene)
    usable = next((name for name, why in states.items() if not why), None)
    container = (claims.container if claims else "") or _derived_name(scene)
    found.facts["container"] = container
    found.facts["state"] = {name: why or None for name, why in states.items()}
    found.told.append(f"ledger of '{container}' {f'in {usable}' if usable else 'nowhere'}")
    found.told += [f"      not in {name}: {why}" for name, why in states.items() if why]
    if usable is None:
        complaint = failed(
            "no folder for the container's ledger",
            "; ".join(f"{name} {why}" for name, why in states.items()),
            "Make it with mode 1777, or set GPUFENCE_SCOPE=process"
            if named
            else "Mount one with mode 1777 at /run/gpufence, or set GPUFENCE_SCOPE=process",
        )
        needed = claims is not None and claims.any_limit and not claims.process_scope
        (found.problems if needed else found.notes).append(complaint)
    elif _is_frozen(scene, usable, container):
        found.told.append(f"'{container}' is frozen")
        found.notes.append(
            failed(
                f"container '{container}' is frozen",
                "an operator holds all of its launches",
                f"Let them go on with `gpufence resume {container}`",
            )
        )
    _node_folder(scene, claims.node_folder if claims else "", found)
    return found.done()


def _is_frozen(scene: Scene, folder: str, container: str) -> bool:
    path = limits_file.path_of(scene.path(folder), containers.reduced(container))
    try:
        held = limits_file.read(path, None)
    except ToolError:
        return False
    return bool(held and held.frozen)


def _derived_name(scene: Scene) -> str:
    """What a container without a name of its own is called."""
    try:
        return lifetimes.name_of(Path(f"/proc/{scene.subject.pid}"), scene.root)
    except OSError:
        return "(unknown)"


def _node_folder(scene: Scene, name: str, found: Collected) -> None:
    why = _folder_state(scene, name) if name else ""
    found.facts["node"] = {"path": name or None, "problem": why or None}
    found.told.append(f"turns in {name}" if name else "turns with no other container")
    if why:
        found.told[-1] += f", but it {why}"
        found.problems.append(
            failed(
                f"GPUFENCE_NODE_DIR={name}",
                f"it {why}",
                "Mount the node's folder there, with mode 1777",
            )
        )


def _usual_states(scene: Scene) -> dict[str, str]:
    """Why no ledger lies in each of the usual folders, up to the one where it belongs: "" there.

    The first that is for every user decides, also where doctor's own cannot use it.
    """
    states: dict[str, str] = {}
    for name in places.USUAL:
        try:
            states[name] = places.why_passed_by(scene.path(name))
            if states[name]:
                continue
            states[name] = _folder_state(scene, name)
        except OSError as error:
            states[name] = (error.strerror or str(error)).lower()
        break
    return states


def _folder_state(scene: Scene, name: str) -> str:
    """Why a file cannot be made in a folder, or the folder itself; "" if it can."""
    path = scene.path(name)
    try:
        absent = not path.exists()
        place = path.parent if absent else path  # the library makes one level
        if not place.is_dir():
            return "does not exist, nor does the folder above it" if absent else "is no folder"
        if not os.access(place, os.W_OK | os.X_OK):
            return "does not exist and cannot be made" if absent else "cannot be written"
        space = os.statvfs(place)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if space.f_flag & os.ST_RDONLY:
        return "is on a read-only file system"
    return "has no space left" if space.f_bavail * space.f_frsize < _ENOUGH_BYTES else ""


def library_of(subject: Process) -> MappedFile | None:
    """Our library by its name; or by its soname, where it lies in another limiter's place."""
    if file := subject.find(_LIBRARY):
        return file
    scene = Scene.of(subject)
    preloaded = {entry.rpartition("/")[2] for entry in preloads(scene)}
    for file in subject.files:
        if file.name in preloaded and locate.is_library(scene.mapped(file.path)):
            return file
    return None
