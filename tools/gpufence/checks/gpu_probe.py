"""Asks NVML and, with "context", CUDA what `gpufence doctor` wants to know: a program of its own.

It runs in a process of its own, without the library, because a driver may hang, crash or keep
memory. Prints one JSON object. Only the C interfaces that every driver from 450 on has are used,
and one of branch 615 where the driver has it.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys

_ENTRY = struct.Struct("<I4xQ8x")  # nvmlProcessInfo_t of _v2 and _v3: pid, bytes, two instances
_MOST = 256
_OK, _NOT_SUPPORTED, _NOT_FOUND, _TOO_SMALL = 0, 3, 6, 7
_CGROUPS = b"/sys/fs/cgroup"
_NO_LIMIT = (1 << 64) - 1


class _MemoryLimits(ctypes.Structure):  # nvmlGetMemoryLimits_v1_t
    _fields_ = (
        ("folder", ctypes.c_char_p),
        ("soft", ctypes.c_ulonglong),
        ("hard", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class ProbeError(Exception):
    """A call that failed, with its code."""


def main() -> None:
    """Print what could be found out."""
    told: dict[str, object] = {"pid": os.getpid()}
    try:
        told["gpus"] = _gpus(with_context="context" in sys.argv[1:])
    except (ProbeError, OSError, AttributeError) as error:
        told["problem"] = str(error)
    json.dump(told, sys.stdout)


def _check(name: str, code: int) -> None:
    if code != _OK:
        raise ProbeError(f"{name} returned {code}")


def _gpus(with_context: bool) -> list[dict[str, object]]:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    _check("nvmlInit_v2", nvml.nvmlInit_v2())
    count = ctypes.c_uint()
    _check("nvmlDeviceGetCount_v2", nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
    found = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        _check("nvmlDeviceGetHandleByIndex_v2", code)
        found.append(_gpu(nvml, handle, with_context))
    return found


def _gpu(nvml: ctypes.CDLL, handle: ctypes.c_void_p, with_context: bool) -> dict[str, object]:
    uuid = ctypes.create_string_buffer(96)
    _check("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID(handle, uuid, len(uuid)))
    bus = ctypes.create_string_buffer(68)  # nvmlPciInfo_t: 16 bytes of old id, numbers, bus id
    _check("nvmlDeviceGetPciInfo_v3", nvml.nvmlDeviceGetPciInfo_v3(handle, bus))
    told: dict[str, object] = {"uuid": uuid.value.decode(), "mig": _mig(nvml, handle)}
    before = _pids(nvml, handle)
    told["listed"] = before
    told["native"] = _native(nvml, handle, _cgroup())
    if with_context and before is not None:
        told["with_context"] = _newcomers(nvml, handle, bus.raw[36:68].split(b"\0")[0], before)
    return told


def _mig(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> bool | None:
    """Whether the GPU is split; None: it cannot be."""
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    code = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(mode), ctypes.byref(pending))
    return bool(mode.value) if code == _OK else None


def _cgroup() -> bytes | None:
    """The folder of this process's cgroup as it is seen here; None without cgroup v2."""
    with open("/proc/self/cgroup", "rb") as stream:
        lines = stream.read().splitlines()
    paths = [line.removeprefix(b"0::") for line in lines if line.startswith(b"0::")]
    return (_CGROUPS + paths[0]).rstrip(b"/") if paths else None


def _native(
    nvml: ctypes.CDLL, handle: ctypes.c_void_p, cgroup: bytes | None
) -> dict[str, object] | None:
    """What the driver itself limits the cgroup to, or why it does not tell; None: to nothing."""
    call = getattr(nvml, "nvmlDeviceGetMemoryLimits_v1", None)
    if call is None or cgroup is None:  # the driver needs branch 615 for it, and cgroup v2
        return None
    limits = _MemoryLimits(cgroup, 0, _NO_LIMIT, 0)
    code = call(handle, ctypes.byref(limits))
    if code in (_NOT_SUPPORTED, _NOT_FOUND) and _is_visible(cgroup):
        return None
    if code != _OK:
        folder = cgroup.decode(errors="replace")
        return {"problem": f"nvmlDeviceGetMemoryLimits_v1 returned {code} for {folder}"}
    if limits.soft == 0 and limits.hard == _NO_LIMIT:
        return None
    hard = limits.hard if limits.hard != _NO_LIMIT else None
    return {"soft": limits.soft, "hard": hard, "used": limits.used}


def _is_visible(cgroup: bytes) -> bool:
    """Whether the folder is there; a cgroup outside the cgroup namespace has a path with ".."."""
    return b".." not in cgroup.split(b"/") and os.path.isdir(cgroup)


def _pids(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> list[int] | None:
    """Numbers of the processes on a GPU; None: the list is not to be had."""
    call = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    call = call or nvml.nvmlDeviceGetComputeRunningProcesses_v2
    infos = ctypes.create_string_buffer(_ENTRY.size * _MOST)
    count = ctypes.c_uint(_MOST)
    code = call(handle, ctypes.byref(count), infos)
    if code in (_NOT_SUPPORTED, _TOO_SMALL):
        return None
    _check("nvmlDeviceGetComputeRunningProcesses", code)
    return [pid for pid, _ in _ENTRY.iter_unpack(infos.raw[: _ENTRY.size * count.value])]


def _newcomers(
    nvml: ctypes.CDLL, handle: ctypes.c_void_p, bus: bytes, before: list[int]
) -> list[int] | None:
    """Who is new in the list while this process has a context on that GPU."""
    cuda = ctypes.CDLL("libcuda.so.1")
    _check("cuInit", cuda.cuInit(0))
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuDeviceGetByPCIBusId(ctypes.byref(device), bus) != _OK:
        return None  # hidden by CUDA_VISIBLE_DEVICES
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    _check("cuDevicePrimaryCtxRetain", code)
    try:
        return [pid for pid in _pids(nvml, handle) or [] if pid not in before]
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)


if __name__ == "__main__":
    main()
