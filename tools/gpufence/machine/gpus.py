"""The machine's GPUs as NVML tells them, through ctypes: no package and no nvidia-smi needed.

Owns the few NVML calls that watching needs; every one of them may be missing or refused, and then
its figure is None. Must not know containers. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_TEXT_BYTES = 96
_TEMPERATURE_GPU = 0
_MOST_PROCESSES = 4096
_NO_FIGURE = (1 << 64) - 1
# nvmlProcessInfo_t of _v2 and _v3: pid, bytes, two instances; of the same size in both.
_PROCESS = struct.Struct("<I4xQ8x")
# Clients of a multi-process server are in a list of their own.
_LISTS = ("Compute", "MPSCompute", "Graphics")


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU now.

    Memory in bytes, `busy` as NVML's utilization (0 to 1: the part of its last sample in which a
    kernel ran), `temperature` in degrees Celsius; None for what NVML does not tell.
    """

    index: int
    uuid: str
    name: str | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    busy: float | None
    temperature: int | None


@dataclass(frozen=True, slots=True)
class User:
    """A process that uses a GPU, by the number that NVML has for it; None: bytes not told."""

    pid: int
    uuid: str
    used_bytes: int | None


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Nvml:
    """An initialised NVML; `read` may be called as often as wanted."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @classmethod
    def open(cls, library_name: str = _LIBRARY) -> Nvml | None:
        """None where there is no NVML, or no driver behind it.

        Args:
            library_name: as the loader takes it; a path is a certain file.
        """
        # An onlooker reads the driver's own figures, also where the library is preloaded into it.
        try:
            library = ctypes.CDLL(library_name, mode=os.RTLD_LAZY | os.RTLD_LOCAL)
            return cls(library) if library.nvmlInit_v2() == _SUCCESS else None
        except (OSError, AttributeError):
            return None

    def read(self) -> tuple[Reading, ...]:
        """Every GPU that NVML shows, in its order."""
        count = ctypes.c_uint()
        if not self._ask("nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return ()
        readings = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            found = self._ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            uuid = self._text("nvmlDeviceGetUUID", handle) if found else None
            if uuid is not None:
                readings.append(self._device(index, uuid, handle))
        return tuple(readings)

    def users(self) -> tuple[User, ...]:
        """Every process on every GPU, each once for each GPU."""
        found: dict[tuple[str, int], User] = {}
        for reading in self.read():
            handle = ctypes.c_void_p()
            if self._ask("nvmlDeviceGetHandleByIndex_v2", reading.index, ctypes.byref(handle)):
                for pid, used in self._listed(handle):
                    known = used if used != _NO_FIGURE else None
                    found[reading.uuid, pid] = User(pid, reading.uuid, known)
        return tuple(found[key] for key in sorted(found))

    def _listed(self, handle: ctypes.c_void_p) -> list[tuple[int, int]]:
        pairs: list[tuple[int, int]] = []
        for name in _LISTS:
            buffer = ctypes.create_string_buffer(_PROCESS.size * _MOST_PROCESSES)
            for version in ("_v3", "_v2"):
                count = ctypes.c_uint(_MOST_PROCESSES)
                function = f"nvmlDeviceGet{name}RunningProcesses{version}"
                if self._ask(function, handle, ctypes.byref(count), buffer):
                    pairs += _PROCESS.iter_unpack(buffer.raw[: _PROCESS.size * count.value])
                    break
        return pairs

    def _device(self, index: int, uuid: str, handle: ctypes.c_void_p) -> Reading:
        memory, busy, temperature = _Memory(), _Utilization(), ctypes.c_uint()
        has_memory = self._ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        has_busy = self._ask("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(busy))
        has_temperature = self._ask(
            "nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU, ctypes.byref(temperature)
        )
        return Reading(
            index=index,
            uuid=uuid,
            name=self._text("nvmlDeviceGetName", handle),
            memory_total_bytes=memory.total if has_memory else None,
            memory_used_bytes=memory.used if has_memory else None,
            busy=busy.gpu / 100 if has_busy else None,
            temperature=temperature.value if has_temperature else None,
        )

    def _text(self, function: str, handle: ctypes.c_void_p) -> str | None:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        return (
            text.value.decode("utf-8", "replace")
            if self._ask(function, handle, text, _TEXT_BYTES)
            else None
        )

    def _ask(self, function: str, *arguments: object) -> bool:
        """Whether the call succeeded; a driver that lacks it counts as one that refuses."""
        try:
            return bool(getattr(self._library, function)(*arguments) == _SUCCESS)
        except AttributeError:
            return False
