"""A container's limits file: found, read and changed, one writer at a time.

The only writer there is. Owns who may write and in which order; the bytes are limits_bytes.py's.
Must not know commands or output. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufence.errors import ToolError

from . import places
from . import shared_layout as layout
from .limits_bytes import (
    EVERY_GPU,
    FILE_BYTES,
    GENERATION_AT,
    Amounts,
    bank_at,
    current,
    image,
    is_limits_file,
    pack_bank,
)

_REGION_HEADER = layout.structure("RegionHeader")
_MAGIC = _REGION_HEADER.fields("magic", "layout_version")
_MODE = 0o644
_FIRST_GENERATION = 1
_READ_ATTEMPTS = 100
_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Everything in a limits file, by the GPU's UUID (EVERY_GPU: all without a word of its own)."""

    path: Path
    owner: int  # uid
    generation: int
    entries: Mapping[bytes, Amounts]

    @property
    def is_first(self) -> bool:
        """Whether nothing that was ever set has been changed or taken back."""
        return self.generation <= _FIRST_GENERATION

    @property
    def frozen(self) -> bool:
        """Whether the container's launches are held."""
        return self.entries.get(EVERY_GPU, Amounts()).frozen

    def of(self, uuid: bytes) -> Amounts:
        """What is set for this GPU."""
        general = self.entries.get(EVERY_GPU, Amounts())
        return self.entries.get(uuid, Amounts()).over(general)


class LimitsFileError(ToolError):
    """A limits file that cannot be read or written; exit status 1."""


def path_of(folder: Path, container: str) -> Path:
    """Where a container's limits file is in a folder; its history is beside it."""
    return folder / f"gpufence-{container}.limits{layout.LIMITS_VERSION}"


def _container_of(path: Path) -> str:
    return path.name.removeprefix("gpufence-").removesuffix(f".limits{layout.LIMITS_VERSION}")


def history_of(limits: Path) -> Path:
    """Where the changes of a limits file are kept."""
    return limits.with_name(limits.name + ".history")


def counts(found: os.stat_result, owner: int | None) -> bool:
    """Whether the library would believe this file: the container owner's or root's alone to write.

    Args:
        found: of the file itself.
        owner: uid of the region's owner; None while there is no region, when its maker will be.
    """
    return (
        stat.S_ISREG(found.st_mode)
        and (owner is None or found.st_uid in (owner, 0))
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def read(path: Path, owner: int | None) -> SetLimits | None:
    """What the file says; None where there is none that counts.

    Raises:
        LimitsFileError: it cannot be read, or holds something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        found = os.fstat(descriptor)
        if not counts(found, owner):
            return None
        generation, entries = _read_from(descriptor, path)
    finally:
        os.close(descriptor)
    return SetLimits(path, found.st_uid, generation, entries)


def prepare(folders: tuple[Path, ...], container: str) -> Path:
    """Make an empty limits file where the library will look for it; one that is there stays.

    From then on the container exists, also before a program of it used a GPU.

    Args:
        folders: those that the library looks into.
        container: its name, as files have it.

    Raises:
        LimitsFileError: it cannot be made where the library would look for it.
    """
    path = path_of(folders[0], container)
    try:
        folder = places.home(folders, container)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no folder is for every user to write to")
        path = path_of(folder, container)
        if not os.path.lexists(path):
            if len(folders) == 1:
                _make_folder(folder)
            _make(path, image(container, _FIRST_GENERATION, {}), replacing=False)
    except OSError as error:
        raise _unusable(path, error) from None
    return path


def change(
    path: Path,
    owner: int,
    least_generation: int,
    edit: Callable[[Mapping[bytes, Amounts]], Mapping[bytes, Amounts]],
    record: Callable[[int, Mapping[bytes, Amounts], Mapping[bytes, Amounts]], None],
    *,
    replace_damaged: bool,
) -> SetLimits:
    """Put edited limits in place of those that hold, one writer at a time.

    Args:
        path: the limits file; it is made where there is none.
        owner: uid of the container's owner. A file that root changes is root's until nothing is
            set any more.
        least_generation: the new one is above it: what processes were told last.
        edit: from the old entries to the new ones; may raise.
        record: is told the new generation, the old and the new entries before they hold.
        replace_damaged: begin anew where the file holds something else.

    Raises:
        LimitsFileError: the file cannot be written, is somebody else's, or is being written to.
    """
    try:
        with _locked(path, owner) as descriptor:
            try:
                generation, entries = _read_from(descriptor, path)
            except LimitsFileError:
                if not replace_damaged:
                    raise
                generation, entries = 0, {}
                _make(path, image(_container_of(path), _FIRST_GENERATION, {}), replacing=True)
                return change(path, owner, least_generation, edit, record, replace_damaged=False)
            wanted = {uuid: each for uuid, each in edit(entries).items() if not each.empty}
            generation = max(generation, least_generation) + 1
            record(generation, entries, wanted)
            _write(descriptor, generation, wanted)
            keeper = 0 if os.geteuid() == 0 and wanted else owner
            if os.geteuid() == 0 and os.fstat(descriptor).st_uid != keeper:
                os.fchown(descriptor, keeper, -1)
            return SetLimits(path, keeper, generation, wanted)
    except OSError as error:
        raise _unusable(path, error) from None


def announce(region: Path, generation: int) -> None:
    """Tell the container's running processes that there is something newer: the last step.

    Raises:
        LimitsFileError: its region cannot be written to, so that they go on as before.
    """
    try:
        descriptor = os.open(region, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise _unusable(region, error) from None
    try:
        header = os.pread(descriptor, _REGION_HEADER.bytes, 0)
        magic, version = _MAGIC.unpack(header.ljust(_REGION_HEADER.bytes, b"\0"))
        if (magic, version) != (layout.REGION_MAGIC, layout.REGION_VERSION):
            raise LimitsFileError(
                what=f"cannot write {region}",
                why="it is no region of this version, so that only later programs are limited",
                fix="Restart the container's programs",
            )
        os.pwrite(
            descriptor, struct.pack("<I", generation % 2**32), _REGION_HEADER.at("set_generation")
        )
        # Every other value than the one that processes saw last will do; 0 is what they begin with.
        epoch = int.from_bytes(os.urandom(4), "little") | 1
        os.pwrite(descriptor, struct.pack("<I", epoch), _REGION_HEADER.at("limit_epoch"))
    except OSError as error:
        raise _unusable(region, error) from None
    finally:
        os.close(descriptor)


def told(region: Path) -> int:
    """The generation that a region's processes were told last; 0 where nobody can tell."""
    try:
        with region.open("rb") as file:
            file.seek(_REGION_HEADER.at("set_generation"))
            return int.from_bytes(file.read(4), "little")
    except OSError:
        return 0


def _write(descriptor: int, generation: int, entries: Mapping[bytes, Amounts]) -> None:
    """Two steps; the second one makes the first one count."""
    os.pwrite(descriptor, pack_bank(generation, entries), bank_at(generation))
    os.pwrite(descriptor, struct.pack("<Q", generation), GENERATION_AT)


def _read_from(descriptor: int, path: Path) -> tuple[int, dict[bytes, Amounts]]:
    """The current bank, read again while a writer is ahead of us."""
    for _ in range(_READ_ATTEMPTS):
        content = os.pread(descriptor, FILE_BYTES, 0)
        if not is_limits_file(content, _container_of(path)):
            break
        found = current(content)
        if found is not None:
            return found
    raise LimitsFileError(
        what=f"cannot read {path}",
        why="it is damaged, and what it said before holds",
        fix="Set the container's limits anew with `gpufence set NAME --reset`",
    )


def _make_folder(folder: Path) -> None:
    """As the library makes it: every user of the container may keep files there."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o1777)


def _make(path: Path, image: bytes, *, replacing: bool) -> None:
    """Build the file beside its place and put it there whole; one that came first stays."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(draft, flags, _MODE)
    try:
        os.fchmod(descriptor, _MODE)
        os.write(descriptor, image)
        if replacing:
            os.rename(draft, path)
            return
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


@contextlib.contextmanager
def _locked(path: Path, owner: int) -> Iterator[int]:
    """The file, made if need be, and ours alone to write while `with` lasts."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        descriptor = _open_to_write(path, owner)
        try:
            if _lock(descriptor) and _leads_to(path, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > until:
            raise LimitsFileError(
                what=f"cannot write {path}",
                why="another command has been writing to it for seconds",
                fix="Find it with `fuser` and end it, then try again",
            )
        time.sleep(0.002)


def _open_to_write(path: Path, owner: int) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Without O_CREAT, which sticky folders refuse for others' files (fs.protected_regular).
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        _make(path, image(_container_of(path), _FIRST_GENERATION, {}), replacing=False)
        descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if counts(found, owner):
        return descriptor
    os.close(descriptor)
    raise LimitsFileError(
        what=f"cannot write {path}",
        why=f"it is user {found.st_uid}'s, or others can write to it, so no program follows it",
        fix="Remove it as root",
    )


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether the name is still this file's: another command may have put one in its place."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _unusable(path: Path, error: OSError) -> LimitsFileError:
    fix = "Free space there, or name another folder with --state-dir"
    if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP):
        fix = "Run this as the container's owner or as root"
    why = (error.strerror or "it cannot be used").lower()
    return LimitsFileError(what=f"cannot use {path}", why=why, fix=fix)
