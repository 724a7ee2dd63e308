"""A container's limits file: what an operator set for it while its programs run.

Knows lib/src/state/limits_layout.h and is the only writer. A file has two banks: a change goes into
the one that is not current, then the generation names it, so that a writer killed anywhere leaves
the limits as they were. Must not know commands or output. Standard library only.
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
from dataclasses import dataclass, replace
from pathlib import Path

from . import shared_layout as layout
from .errors import ToolError

EVERY_GPU = bytes(16)

_HEADER = struct.Struct(layout.LIMITS_HEADER_FORMAT)
_BANK = struct.Struct(layout.LIMITS_BANK_FORMAT)
_ENTRY = struct.Struct(layout.LIMITS_ENTRY_FORMAT)
_MODE = 0o644
_READ_ATTEMPTS = 100
_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """What is set for one GPU, or for every GPU; None leaves it to environment and files.

    `memory` is bytes, or with `memory_is_part` billionths of a percent of the GPU; shares are in
    thousandths of a percent. 0 is an explicit "no limit".
    """

    memory: int | None = None
    memory_is_part: bool = False
    cores: int | None = None
    soft_cores: int | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is set."""
        return self.memory is None and self.cores is None and self.soft_cores is None

    def over(self, general: Amounts) -> Amounts:
        """These, and where nothing is set, the general ones."""
        filled = self
        if self.memory is None:
            filled = replace(
                filled, memory=general.memory, memory_is_part=general.memory_is_part
            )
        if self.cores is None:
            filled = replace(filled, cores=general.cores)
        if self.soft_cores is None:
            filled = replace(filled, soft_cores=general.soft_cores)
        return filled


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Everything in a limits file, by the GPU's UUID (EVERY_GPU: all without a word of its own)."""

    path: Path
    owner: int  # uid
    generation: int
    entries: Mapping[bytes, Amounts]

    def of(self, uuid: bytes) -> Amounts:
        """What is set for this GPU."""
        general = self.entries.get(EVERY_GPU, Amounts())
        return self.entries.get(uuid, Amounts()).over(general)


class LimitsFileError(ToolError):
    """A limits file that cannot be read or written; exit status 1."""


def path_of(folder: Path, container: str) -> Path:
    """Where a container's limits file is in a folder; its history is beside it."""
    return folder / f"gpufence-{container}.limits{layout.LIMITS_VERSION}"


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

    Raises:
        LimitsFileError: it can be made in none of the folders.
    """
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in folders:
        path = path_of(folder, container)
        if os.path.lexists(path):
            return path
    for folder in folders:
        path = path_of(folder, container)
        try:
            _make_folder(folder)
            _make(path, _image(1, {}), replacing=False)
        except OSError as error:
            problem = error
        else:
            return path
    raise _unusable(path_of(folders[-1], container), problem)


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
                _make(path, _image(1, {}), replacing=True)
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
        header = os.pread(descriptor, layout.HEADER_BYTES, 0)
        magic, version = struct.unpack_from("<QI", header.ljust(layout.HEADER_BYTES, b"\0"))
        if (magic, version) != (layout.REGION_MAGIC, layout.REGION_VERSION):
            raise LimitsFileError(
                what=f"cannot write {region}",
                why="it is no region of this version, so that only later programs are limited",
                fix="Restart the container's programs",
            )
        os.pwrite(descriptor, struct.pack("<I", generation % 2**32), layout.SET_GENERATION_AT)
        # Every other value than the one that processes saw last will do; 0 is what they begin with.
        epoch = int.from_bytes(os.urandom(4), "little") | 1
        os.pwrite(descriptor, struct.pack("<I", epoch), layout.LIMIT_EPOCH_AT)
    except OSError as error:
        raise _unusable(region, error) from None
    finally:
        os.close(descriptor)


def told(region: Path) -> int:
    """The generation that a region's processes were told last; 0 where nobody can tell."""
    try:
        with region.open("rb") as file:
            file.seek(layout.SET_GENERATION_AT)
            return int.from_bytes(file.read(4), "little")
    except OSError:
        return 0


def check_of(content: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return value


def _pack_bank(generation: int, entries: Mapping[bytes, Amounts]) -> bytes:
    packed = b"".join(_pack_entry(uuid, each) for uuid, each in sorted(entries.items()))
    rest = struct.pack("<QI4x", generation, len(entries)) + packed
    return struct.pack("<Q", check_of(rest)) + rest


def _pack_entry(uuid: bytes, amounts: Amounts) -> bytes:
    flags = (
        layout.MEMORY_IS_SET * (amounts.memory is not None)
        | layout.MEMORY_IS_PART * amounts.memory_is_part
        | layout.CORES_ARE_SET * (amounts.cores is not None)
        | layout.SOFT_CORES_ARE_SET * (amounts.soft_cores is not None)
    )
    shares = (amounts.cores or 0, amounts.soft_cores or 0)
    return _ENTRY.pack(uuid, amounts.memory or 0, 0, *shares, flags)


def _image(generation: int, entries: Mapping[bytes, Amounts]) -> bytes:
    """A whole file."""
    image = bytearray(layout.LIMITS_BYTES)
    _HEADER.pack_into(image, 0, layout.LIMITS_MAGIC, layout.LIMITS_VERSION, layout.MAX_LIMITS_ENTRIES, generation)
    bank = _pack_bank(generation, entries)
    start = _HEADER.size + layout.LIMITS_BANK_BYTES * (generation & 1)
    image[start : start + len(bank)] = bank
    return bytes(image)


def _write(descriptor: int, generation: int, entries: Mapping[bytes, Amounts]) -> None:
    """Two steps; the second one makes the first one count."""
    bank = _pack_bank(generation, entries)
    os.pwrite(descriptor, bank, _HEADER.size + layout.LIMITS_BANK_BYTES * (generation & 1))
    os.pwrite(descriptor, struct.pack("<Q", generation), layout.LIMITS_GENERATION_AT)


def _read_from(descriptor: int, path: Path) -> tuple[int, dict[bytes, Amounts]]:
    """The current bank, read again while a writer is ahead of us."""
    for _ in range(_READ_ATTEMPTS):
        content = os.pread(descriptor, layout.LIMITS_BYTES, 0)
        if len(content) < layout.LIMITS_BYTES:
            break
        magic, version, most, generation = _HEADER.unpack_from(content)
        if (magic, version, most) != (layout.LIMITS_MAGIC, layout.LIMITS_VERSION, layout.MAX_LIMITS_ENTRIES):
            break
        start = _HEADER.size + layout.LIMITS_BANK_BYTES * (generation & 1)
        check, written, count = _BANK.unpack_from(content, start)
        end = start + _BANK.size + _ENTRY.size * count
        if (
            written == generation
            and count <= layout.MAX_LIMITS_ENTRIES
            and check_of(content[start + 8 : end]) == check
        ):
            return generation, dict(_unpack_entries(content[start + _BANK.size : end]))
    raise LimitsFileError(
        what=f"cannot read {path}",
        why="it is damaged, and what it said before holds",
        fix="Set the container's limits anew with `gpufence set NAME --reset`",
    )


def _unpack_entries(content: bytes) -> Iterator[tuple[bytes, Amounts]]:
    for uuid, memory, _, cores, soft_cores, flags in _ENTRY.iter_unpack(content):
        amounts = Amounts(
            memory if flags & layout.MEMORY_IS_SET else None,
            bool(flags & layout.MEMORY_IS_PART),
            cores if flags & layout.CORES_ARE_SET else None,
            soft_cores if flags & layout.SOFT_CORES_ARE_SET else None,
        )
        yield uuid, amounts


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
        _make(path, _image(1, {}), replacing=False)
        descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if counts(found, owner):
        return descriptor
    os.close(descriptor)
    raise LimitsFileError(
        what=f"cannot write {path}",
        why=f"it is user {found.st_uid}'s or not its owner's alone to write, so no program heeds it",
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
