"""Launches one kernel on each GPU, or on those named, so that the library finds out their pauses.

A program of `gpufence calibrate`'s, which puts the library in front of it. Prints one JSON list of
the GPUs: place and UUID.
"""

from __future__ import annotations

import ctypes
import json
import sys

_KERNEL = (
    b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry first()\n{\n    ret;\n}\n\0"
)
_OK = 0


class ProbeError(Exception):
    """A call that failed, with its code."""


def main() -> None:
    """Launch, and print what on."""
    named = [int(word) for word in sys.argv[1:]]
    cuda = ctypes.CDLL("libcuda.so.1")
    try:
        _check("cuInit", cuda.cuInit(0))
        count = ctypes.c_int()
        _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
        told: dict[str, object] = {"gpus": [_use(cuda, i) for i in named or range(count.value)]}
    except (ProbeError, OSError, AttributeError) as error:
        told = {"problem": str(error)}
    json.dump(told, sys.stdout)


def _check(name: str, code: int) -> None:
    if code != _OK:
        raise ProbeError(f"{name} returned {code}")


def _use(cuda: ctypes.CDLL, ordinal: int) -> dict[str, object]:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    uuid = ctypes.create_string_buffer(16)
    _check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    _check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    _check("cuModuleLoadData", cuda.cuModuleLoadData(ctypes.byref(module), _KERNEL))
    _check(
        "cuModuleGetFunction", cuda.cuModuleGetFunction(ctypes.byref(function), module, b"first")
    )
    _check("cuLaunchKernel", cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    _check("cuCtxSynchronize", cuda.cuCtxSynchronize())
    tell = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    _check("cuDeviceGetUuid", tell(uuid, device))
    return {"gpu": ordinal, "uuid": uuid.raw.hex()}


if __name__ == "__main__":
    main()
