"""When kernels ran, by CUPTI's activity records and nothing else.

A framework's own profiler writes down every call of the host, too, and slows what it looks at by a
tenth; these records cost one to three percent of the rate. Standard library only: the driver's
toolkit, or the framework that is measured, brings the library. Must not know the framework.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import struct
import sysconfig
from pathlib import Path
from typing import Any

# Of cupti_activity.h; records only ever grew at their end.
KERNELS = (3, 10)  # CUPTI_ACTIVITY_KIND_KERNEL, _CONCURRENT_KERNEL
TIMES_AT = 16  # begin and end, in nanoseconds, in a kernel's record
DEVICE_AT = 40  # and the ordinal of its device
HEAD_BYTES = 44
_ENABLED = 10
_FORCED = 1  # a flush hands over buffers that are not full, too
_BUFFER_BYTES = 4 << 20

_Asked = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Done = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


def _libraries() -> list[str]:
    """Where CUPTI is: loaded already, beside the framework, or in the toolkit."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    loaded = re.findall(r"(/\S*/libcupti\.so\S*)", maps)
    wheels = sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/**/libcupti.so.*"))
    toolkit = Path("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so")
    return [*loaded, *map(str, wheels), str(toolkit), "libcupti.so"]


class KernelRecords:
    """Kernels of this process between begin() and end(); OSError where CUPTI cannot be had.

    `device`: only those of this one.
    """

    def __init__(self, device: int | None = None) -> None:
        self._cupti = _load()
        self._device = device
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._spans: list[tuple[int, int]] = []
        # Kept, since CUPTI goes on calling them.
        self._callbacks = (_Asked(self._give_buffer), _Done(self._take_buffer))
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def begin(self) -> None:
        """From here on kernels are written down."""
        self._spans.clear()
        self._call("cuptiActivityEnable", _ENABLED)

    def end(self) -> list[tuple[int, int]]:
        """The (begin, end) of each kernel since begin(); all of them must have ended."""
        self._call("cuptiActivityFlushAll", _FORCED)
        self._call("cuptiActivityDisable", _ENABLED)
        return sorted(self._spans)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._cupti, name)(*arguments)
        if status != 0:
            raise OSError(f"{name}: CUPTI's status {status}")

    def _give_buffer(self, buffer: Any, size: Any, most_records: Any) -> None:  # noqa: ANN401 - pointers
        made = ctypes.create_string_buffer(_BUFFER_BYTES)
        self._buffers[ctypes.addressof(made)] = made
        buffer[0], size[0], most_records[0] = ctypes.addressof(made), _BUFFER_BYTES, 0

    def _take_buffer(self, _context: int, _stream: int, buffer: int, _size: int, used: int) -> None:
        record = ctypes.c_void_p()
        following = self._cupti.cuptiActivityGetNextRecord
        while following(ctypes.c_void_p(buffer), ctypes.c_size_t(used), ctypes.byref(record)) == 0:
            assert record.value is not None
            span = span_of(ctypes.string_at(record.value, HEAD_BYTES), self._device)
            if span is not None:
                self._spans.append(span)
        del self._buffers[buffer]


def _load() -> ctypes.CDLL:
    for name in _libraries():
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError("there is no libcupti")


def span_of(record: bytes, device: int | None = None) -> tuple[int, int] | None:
    """When a kernel ran, by the head of its record; None for what is none, or of another device."""
    (kind,) = struct.unpack_from("<I", record)
    begin_ns, end_ns = struct.unpack_from("<QQ", record, TIMES_AT)
    if kind not in KERNELS or begin_ns >= end_ns:
        return None
    (where,) = struct.unpack_from("<I", record, DEVICE_AT)
    return (begin_ns, end_ns) if device in (None, where) else None
