"""Work whose limits change while it runs: kernels one after the other, and requests for memory.

`live_load.py torch|spin FILE`: "ready", then works until a line comes, then writes FILE: moments of
CLOCK_MONOTONIC in nanoseconds at which a kernel was seen done, and for each request for memory the
moment and the driver's code. Spin needs nothing but the driver, so that it also runs over the
simulated one.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence

SPIN_NS = 1_000_000
REQUEST_BYTES = 64 << 20
PAUSE_S = 0.002
PTX = (
    (Path(__file__).parents[2] / "support" / "spin_kernel.h")
    .read_bytes()
    .split(b'R"(')[1]
    .split(b')"')[0]
)


class Driver:
    """The driver's own functions, and the primary context."""

    def __init__(self) -> None:
        """Takes the context."""
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self.must(self.cuda.cuInit(0))
        self.must(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        self.enter()

    def enter(self) -> None:
        """Makes the context the calling thread's."""
        self.must(self.cuda.cuCtxSetCurrent(self.context))

    @staticmethod
    def must(code: int) -> None:
        """Ends the program where the driver refuses."""
        if code != 0:
            raise SystemExit(f"the driver refused: {code}")

    def request(self) -> int:
        """Asks for memory and gives it back; the code."""
        pointer = ctypes.c_uint64()
        code = int(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(REQUEST_BYTES)))
        if code == 0:
            self.must(self.cuda.cuMemFree_v2(pointer))
        return code


def spin(driver: Driver) -> Callable[[], None]:
    """One kernel of a millisecond, waited for."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.must(driver.cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    name = b"gpufence_spin_ns"
    driver.must(driver.cuda.cuModuleGetFunction(ctypes.byref(function), module, name))
    length = ctypes.c_uint64(SPIN_NS)
    shape = [ctypes.c_uint(size) for size in (132, 1, 1, 1, 1, 1, 0)]

    def once() -> None:
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
        launched = driver.cuda.cuLaunchKernel(function, *shape, None, parameters, None)
        driver.must(launched)
        driver.must(driver.cuda.cuCtxSynchronize())

    return once


def matmul() -> Callable[[], None]:
    """One large product of PyTorch's, waited for."""
    (torch,) = evidence.need("torch")
    one: Any = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out: Any = torch.empty_like(one)

    def once() -> None:
        torch.matmul(one, one, out=out)
        torch.cuda.synchronize()

    return once


def main() -> None:
    """See the module's text."""
    way, file = sys.argv[1], Path(sys.argv[2])
    work = matmul() if way == "torch" else None
    driver = Driver()
    once = work or spin(driver)
    done: list[int] = []
    requests: list[tuple[int, int]] = []
    stopped = threading.Event()

    def ask() -> None:
        driver.enter()
        while not stopped.wait(PAUSE_S):
            code = driver.request()
            requests.append((time.monotonic_ns(), code))

    def launch() -> None:
        driver.enter()
        while not stopped.is_set():
            once()
            done.append(time.monotonic_ns())

    for _ in range(10):
        once()
    threads = [threading.Thread(target=task) for task in (ask, launch)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    stopped.set()
    for thread in threads:
        thread.join()
    file.write_text(json.dumps({"done": done, "requests": requests}), encoding="utf-8")
    print("done", flush=True)


if __name__ == "__main__":
    main()
