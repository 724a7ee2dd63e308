"""One program of `gpufence demo`: fills its memory, then keeps the GPU busy.

    tenant.py SECONDS KERNEL_MS

An ordinary CUDA program, by ctypes: knows nothing of gpufence, and starts as a file of its own.
Prints one JSON object, with the time for which the machine did not let it run. Exit status: 0, or
1 with the call that failed. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time

_PIECE_BYTES = 64 << 20
_OUT_OF_MEMORY = 2
# Shares are even only once both programs run: the first part of the time does not count.
_WARM_UP = 0.2
_AHEAD = 6
# A thread that wants to run this often is not late by more where processors are merely shared.
_TICK_S = 0.02
_LATE_S = 0.15

# The simulated driver takes a kernel's duration from its name and runs nothing.
_PTX = """
.version 7.0
.target sm_50
.address_size 64
.visible .entry step_{ms}ms() {{ ret; }}
"""


class Stalls(threading.Thread):
    """How long this process stood still: a stopped or starved one misses its ticks."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._total_s = 0.0
        self._last_s = time.monotonic()
        self._end = threading.Event()

    def run(self) -> None:
        """Look at the clock until `end`."""
        while not self._end.wait(_TICK_S):
            self.tick(time.monotonic())

    def tick(self, now_s: float) -> None:
        """Count the time since the last tick, if it is too long."""
        if now_s - self._last_s > _LATE_S:
            self._total_s += now_s - self._last_s
        self._last_s = now_s

    def end(self) -> int:
        """Stop looking; all stalls together, in nanoseconds."""
        self._end.set()
        self.join()
        return round(self._total_s * 1e9)


class CallFailed(Exception):
    """A driver function returned something else than success."""


class Cuda:
    """The driver; its calls raise when they fail."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def status(self, name: str, *arguments: object) -> int:
        """Call a function; its status."""
        return int(getattr(self._library, name)(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns 0 for success."""
        status = self.status(name, *arguments)
        if status != 0:
            raise CallFailed(f"{name} returned {status}")


def main() -> int:
    """Run; returns the exit status."""
    seconds, kernel_ms = float(sys.argv[1]), int(sys.argv[2])
    try:
        cuda = Cuda()
        open_device(cuda)
        memory = fill(cuda)
        stalls = Stalls()
        stalls.start()
        share = work(cuda, seconds, kernel_ms)
    except (OSError, CallFailed) as error:
        print(f"tenant: {error}", file=sys.stderr)
        return 1
    print(json.dumps({**memory, "share": share, "stalled_ns": stalls.end()}))
    return 0


def open_device(cuda: Cuda) -> None:
    """The first device, with a context."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda.call("cuInit", 0)
    cuda.call("cuDeviceGet", ctypes.byref(device), 0)
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda.call("cuCtxSetCurrent", context)


def fill(cuda: Cuda) -> dict[str, int]:
    """Take memory in pieces until the driver refuses, then give half of it back."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    pieces: list[ctypes.c_uint64] = []
    status = 0
    while status == 0 and len(pieces) * _PIECE_BYTES <= total.value:
        piece = ctypes.c_uint64()
        size = ctypes.c_size_t(_PIECE_BYTES)
        status = cuda.status("cuMemAlloc_v2", ctypes.byref(piece), size)
        if status == 0:
            pieces.append(piece)
    if status not in (0, _OUT_OF_MEMORY):
        raise CallFailed(f"cuMemAlloc_v2 returned {status}")
    for piece in pieces[::2]:
        cuda.call("cuMemFree_v2", piece)
    granted = len(pieces) * _PIECE_BYTES
    return {"seen_bytes": total.value, "granted_bytes": granted, "refused_status": status}


def work(cuda: Cuda, seconds: float, kernel_ms: int) -> float:
    """Launch kernels for so long; the part of the time (0 to 1) that they took."""
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    image = _PTX.format(ms=kernel_ms).encode()
    cuda.call("cuModuleLoadData", ctypes.byref(module), image)
    name = f"step_{kernel_ms}ms".encode()
    cuda.call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
    begin = time.monotonic()
    counted_from, counted = begin + seconds * _WARM_UP, 0
    while (now := time.monotonic()) < begin + seconds:
        for _ in range(_AHEAD):
            cuda.call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        cuda.call("cuCtxSynchronize")
        if now >= counted_from:
            counted += _AHEAD
    return counted * kernel_ms / 1000 / (time.monotonic() - counted_from)


if __name__ == "__main__":
    sys.exit(main())
