"""What limits are read from: lib/limits/options.txt, which describes its own form.

Must not know what the library does with a variable, nor what is rendered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import HookgenError

FILE = "options.txt"
# What may follow a name, as the list writes it and as the library calls it.
KEYS = {"": "kNone", "<i>": "kIndex", "<i>, <uuid>": "kIndexOrUuid"}
_KINDS = ("file", "setting", "dialect")


@dataclass(frozen=True, slots=True)
class Named:
    """A file, setting or dialect, and its path, meaning or title."""

    name: str
    text: str

    @property
    def constant(self) -> str:
        """Its name in C++: kVgpuManager."""
        return constant(self.name)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; dialect, setting and keys as C++ calls them."""

    name: str
    dialect: str
    setting: str
    keys: str


@dataclass(frozen=True, slots=True)
class Options:
    """The whole list, in its order."""

    files: tuple[Named, ...]
    settings: tuple[Named, ...]
    dialects: tuple[Named, ...]
    variables: tuple[Variable, ...]


NO_OPTIONS = Options((), (), (), ())


def constant(name: str) -> str:
    """VGPU_MANAGER is kVgpuManager."""
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def path(api_dir: Path) -> Path:
    """The list that belongs to a model folder: beside it, or else this project's own."""
    return list_path(api_dir, "limits", FILE)


def list_path(api_dir: Path, folder: str, name: str) -> Path:
    """A list in a folder of lib: beside the model, in an installed package, or in a checkout."""
    package = Path(__file__).resolve().parent
    places = (api_dir.parent / folder / name, package.parent / folder / name)
    own = package.parent.parent / "lib" / folder / name
    return next((place for place in places if place.is_file()), own)


def read(text: str) -> Options:
    """Take the list apart.

    Raises:
        HookgenError: names the line that is not of the list's form.
    """
    named: dict[str, list[Named]] = {kind: [] for kind in _KINDS}
    variables: list[Variable] = []
    for line in _lines(text):
        parts = [part.strip() for part in line.split("|")]
        kind, _, name = parts[0].partition(" ")
        if kind in named and len(parts) == 2:
            named[kind].append(Named(name, parts[1]))
        elif len(parts) == 4 and named["dialect"] and parts[1] in KEYS:
            dialect = named["dialect"][-1].constant
            setting, keys = constant(parts[2]), KEYS[parts[1]]
            names = (each.strip() for each in parts[0].split(","))
            variables += [Variable(each, dialect, setting, keys) for each in names]
        else:
            raise _wrong(line, "it is no line of the form that the list's head describes")
    known = {each.constant for each in named["setting"]}
    for variable in variables:
        if variable.setting not in known:
            raise _wrong(variable.name, f"there is no setting {variable.setting}")
    files, settings, dialects = (tuple(named[kind]) for kind in _KINDS)
    return Options(files, settings, dialects, tuple(variables))


def _lines(text: str) -> Iterator[str]:
    """Lines without comments and meanings; one that ends with a comma goes on in the next."""
    begun = ""
    for line in text.splitlines():
        if not line.strip() or line[0] in " #":
            continue
        begun = f"{begun} {line.strip()}".strip()
        if not begun.endswith(","):
            yield begun
            begun = ""


def _wrong(what: str, why: str) -> HookgenError:
    return HookgenError(f"{FILE}: '{what[:60]}' cannot be read", why, f"Correct lib/limits/{FILE}.")
