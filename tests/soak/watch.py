"""The most that was in use on the first GPU, looked at a hundred times a second.

    watch.py     each line on stdin is answered by the most since the last one, in bytes

A process of its own, because the simulated driver's settings are a process's. Standard library.
"""

from __future__ import annotations

import ctypes
import select
import sys


def main() -> None:
    """Look until stdin ends."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device = ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        sys.exit("NVML does not begin")
    most = 0
    while True:
        most = max(most, used(nvml, device))
        if select.select([sys.stdin], [], [], 0.01)[0]:
            if not sys.stdin.readline():
                return
            print(most, flush=True)
            most = 0


def used(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> int:
    """Bytes in use; what the driver keeps is reserved in this version of the query."""
    memory = (ctypes.c_ulonglong * 5)(40 | 2 << 24)
    if nvml.nvmlDeviceGetMemoryInfo_v2(device, memory):
        sys.exit("NVML does not say")
    return int(memory[4])


if __name__ == "__main__":
    main()
