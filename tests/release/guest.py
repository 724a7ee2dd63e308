"""What runs inside another system: asks the driver for memory in several ways, and tells it.

For Python 3.9 and its standard library. Knows the driver's functions and nothing of gpufence:
whether what it got is right, tests/release/judging.py says. Prints JSON.

    guest.py WAY    of WAYS, then as much memory as there is
    guest.py hold   takes some memory, tells so, and waits for the end of its input
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
STEP = 32 * MIB
WAYS = ("linked", "dlsym", "getproc", "threads")
HELD = 1024 * MIB


def main(way: str) -> None:
    """Print one object."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    begun = [
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
    ]
    if way == "hold":
        held, refused = take(cuda.cuMemAlloc_v2, HELD, HELD)
        print(json.dumps({"begun": begun, "granted_mib": held // MIB}), flush=True)
        sys.stdin.read()
        os._exit(0)  # as a killed process ends: nothing is freed
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    if way == "threads":
        granted, refused = in_threads(cuda, context)
    else:
        granted, refused = take(find(cuda, way), STEP, 1 << 40)
    told = {
        "begun": begun,
        "total_mib": total.value // MIB,
        "free_mib": free.value // MIB,
        "granted_mib": granted // MIB,
        "refused": refused,
        "nvml_mib": nvml_total() // MIB,
        "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
    }
    print(json.dumps(told))


def find(cuda: ctypes.CDLL, way: str) -> Callable[..., int]:
    """The function that allocates, found as programs find it."""
    if way == "linked":
        return cuda.cuMemAlloc_v2  # type: ignore[no-any-return]
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    if way == "dlsym":
        program = ctypes.CDLL(None)
        program.dlsym.restype = ctypes.c_void_p
        return kind(program.dlsym(ctypes.c_void_p(cuda._handle), b"cuMemAlloc_v2"))
    found = ctypes.c_void_p()
    cuda.cuGetProcAddress(b"cuMemAlloc", ctypes.byref(found), 11030, ctypes.c_uint64(0))
    return kind(found.value or 0)


def take(allocate: Callable[..., int], step: int, most: int) -> tuple[int, int]:
    """How many bytes were granted, and the code that ended it; 0 where `most` is reached."""
    granted, pointer = 0, ctypes.c_uint64()
    while granted < most:
        code = allocate(ctypes.byref(pointer), ctypes.c_size_t(step))
        if code != 0:
            return granted, code
        granted += step
    return granted, 0


def in_threads(cuda: ctypes.CDLL, context: Any) -> tuple[int, int]:  # noqa: ANN401 - ctypes
    """All of what four threads were granted at once, and the code of the last refusal."""
    results: list[tuple[int, int]] = []

    def one() -> None:
        cuda.cuCtxSetCurrent(context)
        results.append(take(cuda.cuMemAlloc_v2, STEP, 1 << 40))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(granted for granted, _ in results), max(code for _, code in results)


def nvml_total() -> int:
    """The size of the GPU that NVML shows."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    nvml.nvmlDeviceGetMemoryInfo(device, memory)
    return int(memory[0])


if __name__ == "__main__":
    main(sys.argv[1])
