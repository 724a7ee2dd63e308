"""Files and longer texts of the dialects as grammars: records, YAML, JSON, lists of UUIDs.

The same as lib/src/config/{vgpu_config,shared_file,yaml,json,host_devices}.cpp, equally strict.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import sizes
from .sizes import Fault, TextError
from .sources import FileResult, read_file, split_list

MOST_DEVICES = 64
VGPU_DEVICES = 16
_RECORD_BYTES = 2560
_RECORD_FILE_BYTES = 8192
_SHARED_FILE_BYTES = 35504
_MOST_READS = 100
_MAGIC = 0x56474346
_FLAG = "has a flag that is neither 0 nor 1"

_MEMBER = re.compile(r'"([ !#-\[\]-~]*)"[ \t\r\n]*:[ \t\r\n]*(0|[1-9][0-9]*)(?![0-9])')
_SPACE = " \t\r\n"

_PLAIN_START = frozenset("{}[],&*!|>%@`?-")


class FileError(Exception):
    """A file that is not what its place says, as a clause."""


@dataclass(frozen=True, slots=True)
class VgpuDevice:
    """One active device of vgpu.config."""

    uuid: bytes
    memory_bytes: int  # 0: no limit
    oversubscribe: int  # ratio in thousandths, 1: on without a ratio, 0: off
    hard_percent: int | None  # None: no core limit
    soft_percent: int | None  # None: hard mode


@dataclass(frozen=True, slots=True)
class VgpuRecord:
    """All of vgpu.config that matters; inactive devices are None."""

    stable: bool
    pod_uid: str
    container: str
    devices: tuple[VgpuDevice | None, ...]


def read_vgpu_record(content: bytes) -> VgpuRecord:
    """Read vgpu-manager's binary file.

    Raises:
        FileError: for anything but layout 1 with sensible values.
    """
    if len(content) < _RECORD_BYTES:
        raise FileError("is too short")
    magic, layout, size, count = struct.unpack_from("<4I", content)
    if magic != _MAGIC:
        raise FileError("does not start as vgpu-manager writes it")
    if layout != 1:
        raise FileError("has an unknown layout version")
    if size != _RECORD_BYTES:
        raise FileError("has an unknown size")
    if count != VGPU_DEVICES:
        raise FileError("has an unknown number of devices")
    places = [512 + 128 * i for i in range(VGPU_DEVICES)]
    stable = all(struct.unpack_from("<I", content, at)[0] % 2 == 0 for at in places)
    devices = tuple(_read_vgpu_device(content, at) for at in places) if stable else ()
    return VgpuRecord(stable, _field(content[128:176]), _field(content[304:368]), devices)


def stable_vgpu_record(root: str, path: str) -> VgpuRecord | None:
    """vgpu.config once two reads of it agree; None: there is none.

    Raises:
        FileError: when it is not what vgpu-manager writes, or never stable.
    """
    before: bytes | None = None
    for _ in range(_MOST_READS):
        # One byte more than the library's buffer, which a file may fill.
        content = read_file(root, path, _RECORD_FILE_BYTES + 1)
        if content is FileResult.MISSING:
            return None
        if content is FileResult.TOO_LARGE:
            raise FileError("is too large")
        if isinstance(content, FileResult):
            raise FileError("cannot be read")
        if content == before:
            record = read_vgpu_record(content)
            if record.stable:
                return record
        before = content
    raise FileError("is being written all the time")


def _field(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("latin-1")


def _read_vgpu_device(content: bytes, at: int) -> VgpuDevice | None:
    # seq at 0, uuid at 8, total at 56, real at 64, hard at 72, soft at 76, flags from 80
    raw_uuid = _field(content[at + 8 : at + 56])
    total, real, hard, soft, *flags = struct.unpack_from("<QQII5I", content, at + 56)
    limits_cores, hard_mode, limits_memory, oversold, active = flags
    if active > 1:
        raise FileError(_FLAG)
    if not active:
        return None
    if max(limits_cores, hard_mode, limits_memory, oversold) > 1:
        raise FileError(_FLAG)
    try:
        uuid = sizes.parse_uuid(raw_uuid)
    except TextError:
        raise FileError("names a GPU by no UUID") from None
    if limits_memory and not 0 < total <= sizes.LARGEST:
        raise FileError("has a memory limit that is no size")
    soft_mode = limits_cores and not hard_mode
    if limits_cores and not (1 <= hard <= 100 and (not soft_mode or 1 <= soft <= 100)):
        raise FileError("has a core limit that is no percentage")
    ratio = min(total * sizes.THOUSAND // real, 2**64 - 1) if 0 < real < total else 1
    return VgpuDevice(
        uuid,
        total if limits_memory else 0,
        ratio if oversold and limits_memory else 0,
        hard if limits_cores else None,
        soft if soft_mode else None,
    )


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """One active device of the file that vgpu.rs's hypervisor shares."""

    uuid: bytes
    memory_bytes: int  # 0: no limit
    percent: int


def shared_devices(content: bytes) -> list[tuple[int, bytes]] | None:
    """The active devices of that file, by NVML index; None: it is another file."""
    if len(content) != _SHARED_FILE_BYTES or struct.unpack_from("<I", content)[0] != 1:
        return None
    raw = [content[8 + 136 * i : 8 + 136 * (i + 1)] for i in range(16)]
    return [(i, each) for i, each in enumerate(raw) if struct.unpack_from("<I", each, 128)[0] == 1]


def read_shared_device(raw: bytes) -> SharedDevice:
    """Two limits of one device; the hypervisor's tokens do not matter.

    Raises:
        FileError: for values that are no limits.
    """
    percent, memory_bytes = struct.unpack_from("<I4xQ", raw, 64)
    try:
        uuid = sizes.parse_uuid(_field(raw[:64]))
    except TextError:
        raise FileError("names a GPU by no UUID") from None
    if memory_bytes > sizes.LARGEST:
        raise FileError("has a memory limit that is no size")
    if percent > 100:
        raise FileError("has a core limit that is no percentage")
    return SharedDevice(uuid, memory_bytes, percent)


def json_numbers(text: str) -> Iterator[tuple[str, int]]:
    """The members of one JSON object of whole numbers, as far as it is one.

    Raises:
        TextError: at the first place where it is not; members before it were given already.
    """
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise TextError(Fault.JSON)
    at = _skip(text, at + 1)
    first = True
    while text[at : at + 1] != "}":
        if not first:
            if text[at : at + 1] != ",":
                raise TextError(Fault.JSON)
            at = _skip(text, at + 1)
        match = _MEMBER.match(text, at)
        if match is None:
            raise TextError(Fault.JSON)
        if len(match[2]) > 19 or int(match[2]) > sizes.LARGEST:
            raise TextError(Fault.TOO_LARGE)
        yield match[1], int(match[2])
        at, first = _skip(text, match.end()), False
    if _skip(text, at + 1) != len(text):
        raise TextError(Fault.JSON)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def read_yaml_map(text: str, wanted: Sequence[Sequence[str]]) -> list[str | None]:
    """The scalars of a flat YAML map.

    Args:
        text: the file.
        wanted: for each value, the keys that may spell it.

    Returns:
        One text for each wanted value, None where it is not there.

    Raises:
        FileError: with the number of the first line that cannot be read.
    """
    values: list[str | None] = [None] * len(wanted)
    may_nest = False
    for number, line in enumerate(split_list(text, "\n"), 1):
        content = line.strip(" \t\r")
        if not content or content[0] == "#" or line.strip("\r") == "---":
            continue
        if line[0] in " \t" or line.startswith("- ") or content == "-":
            if not may_nest:
                raise FileError(str(number))
            continue
        try:
            key, rest = _yaml_key(line)
            position = next((i for i, keys in enumerate(wanted) if key in keys), None)
            may_nest = position is None
            if position is not None:
                if values[position] is not None:
                    raise FileError
                values[position] = _yaml_scalar(rest)
        except FileError:
            raise FileError(str(number)) from None
    return values


def _yaml_key(line: str) -> tuple[str, str]:
    if line[0] in "\"'":
        key, rest = _quoted(line)
        rest = rest.strip(" \t\r")
        if rest[:1] != ":":
            raise FileError
        rest = rest[1:]
        if rest and rest[0] not in " \t\r":
            raise FileError
        return key, rest
    match = re.search(r":(?=[ \t\r]|\Z)", line)
    if match is None:
        raise FileError
    return line[: match.start()].strip(" \t\r"), line[match.end() :]


def _yaml_scalar(text: str) -> str:
    text = text.strip(" \t\r")
    if not text or text[0] == "#":
        raise FileError
    if text[0] in "\"'":
        scalar, tail = _quoted(text)
        left = tail.strip(" \t\r")
        if left and not (left[0] == "#" and tail[0] in " \t"):
            raise FileError
        return scalar
    if text[0] in _PLAIN_START:
        raise FileError
    comment = re.search(r"(?<=[ \t])#", text)
    scalar = text[: comment.start()].strip(" \t\r") if comment else text
    if ": " in scalar or scalar[-1] == ":":
        raise FileError
    return scalar


def _quoted(text: str) -> tuple[str, str]:
    """A quoted text and what follows; escapes are refused rather than understood."""
    quote = text[0]
    end = text.find(quote, 1)
    inner, rest = text[1:end], text[end + 1 :]
    if end < 0 or rest[:1] == quote or (quote == '"' and "\\" in inner):
        raise FileError
    return inner, rest


def uuid_list(text: str) -> dict[int, bytes] | None:
    """Position -> UUID; None: the text is no such list."""
    parts = split_list(text, ",")
    if parts and not parts[-1].strip(" "):
        parts = parts[:-1]
    if len(parts) > MOST_DEVICES:
        return None
    try:
        return {i: sizes.parse_uuid(part.strip(" ")) for i, part in enumerate(parts)}
    except TextError:
        return None
