"""Archives whose bytes follow from their content alone: tar, gzip, zip and ar.

Entries are sorted, belong to root, and have one time and one of two modes. Must not know what a
file is for. Python's zlib compresses, so another zlib may give other bytes for the same content.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE, _PROGRAM, _FOLDER, _LINK = 0o644, 0o755, 0o755, 0o777
_ZIP_BEGINS = 315532800  # 1980, before which a zip has no times
_LEVEL = 9


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or a symbolic link where `target` is given."""

    content: bytes = b""
    program: bool = False
    target: str = ""

    @property
    def mode(self) -> int:
        """As in a file system."""
        return _LINK if self.target else _PROGRAM if self.program else _FILE


Tree = Mapping[str, Entry]


def read_tree(folder: Path) -> dict[str, Entry]:
    """Every file below a folder, by its path in it; executable as the owner may execute it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = Entry(target=str(path.readlink()))
        elif path.is_file():
            found[name] = Entry(path.read_bytes(), program=bool(path.stat().st_mode & 0o100))
    return found


def tar(tree: Tree, epoch: int, *, top: str = "") -> bytes:
    """A tar file with every folder above a file; `top` stands in front of each name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in _folders(tree):
            archive.addfile(_info(f"{top}{name}", epoch, _FOLDER, tarfile.DIRTYPE))
        for name, entry in sorted(tree.items()):
            kind = tarfile.SYMTYPE if entry.target else tarfile.REGTYPE
            info = _info(f"{top}{name}", epoch, entry.mode, kind)
            info.linkname, info.size = entry.target, len(entry.content)
            archive.addfile(info, io.BytesIO(entry.content))
    return out.getvalue()


def compressed(content: bytes) -> bytes:
    """As gzip -9n: without a name and without a time."""
    return gzip.compress(content, _LEVEL, mtime=0)


def zip_file(tree: Tree, epoch: int, last: Iterable[str] = ()) -> bytes:
    """A zip file; the names in `last` stand behind the others."""
    behind = set(last)
    out = io.BytesIO()
    moment = time.gmtime(max(epoch, _ZIP_BEGINS))[:6]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for name, entry in sorted(tree.items(), key=lambda item: (item[0] in behind, item[0])):
            info = zipfile.ZipInfo(name, moment)
            info.create_system = 3  # Unix, so that modes are kept
            info.external_attr = (0o100000 | entry.mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.content)
    return out.getvalue()


def ar(members: Mapping[str, bytes], epoch: int) -> bytes:
    """An ar file in the order of `members`, which is what a .deb is."""
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        head = f"{name:<16}{epoch:<12}{0:<6}{0:<6}{0o100644:<8o}{len(content):<10}`\n"
        parts += [head.encode("ascii"), content, b"\n" * (len(content) % 2)]
    return b"".join(parts)


# Implementation.


def _folders(tree: Tree) -> list[str]:
    above = {str(parent) for name in tree for parent in Path(name).parents}
    return sorted(name for name in above if name != ".")


def _info(name: str, epoch: int, mode: int, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime, info.mode, info.type = epoch, mode, kind
    info.uname = info.gname = "root"
    return info
