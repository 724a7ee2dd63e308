"""NVML asked from outside of every container, by ctypes: what the driver says processes hold.

Reads commands from stdin, one a line, and answers each with one line of JSON:

  used PID...      bytes of these processes together
  device           bytes of the GPU that are used, whoever holds them
  sample LIMIT PID...   asks as fast as it can until the next line, then tells what it saw

Where the process list knows none of the pids (another pid namespace), every listed process counts:
the GPU is ours alone.
"""

from __future__ import annotations

import ctypes
import json
import select
import struct
import sys
import time

MOST = 256
ENTRY = struct.Struct("<I4xQ8x")  # nvmlProcessInfo_t: pid, usedGpuMemory, two instance ids
NOT_AVAILABLE = 2**64 - 1
BETWEEN_LOOKS = 256  # samples between two looks at stdin


class Nvml:
    """The driver's own list, asked again and again into the same buffer."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.handle = ctypes.c_void_p()
        self.count = ctypes.c_uint(0)
        self.buffer = ctypes.create_string_buffer(ENTRY.size * MOST)
        self.ask = self.library.nvmlDeviceGetComputeRunningProcesses_v3
        for code in (
            self.library.nvmlInit_v2(),
            self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)),
        ):
            if code != 0:
                raise SystemExit(f"NVML answers {code}")

    def listed(self) -> list[tuple[int, int]]:
        """Pairs of pid and bytes."""
        self.count.value = MOST
        code = self.ask(self.handle, ctypes.byref(self.count), self.buffer)
        if code != 0:
            raise SystemExit(f"nvmlDeviceGetComputeRunningProcesses_v3 answers {code}")
        view = memoryview(self.buffer)[: ENTRY.size * self.count.value]
        return [(pid, size) for pid, size in ENTRY.iter_unpack(view) if size != NOT_AVAILABLE]

    def device_used(self) -> int:
        """The `used` of nvmlDeviceGetMemoryInfo, with what the driver keeps for itself."""
        words = (ctypes.c_ulonglong * 3)()
        self.library.nvmlDeviceGetMemoryInfo(self.handle, words)
        return int(words[2])

    def used(self, pids: set[int]) -> tuple[int, int]:
        """Bytes of some processes together, and how many those are."""
        listed = self.listed()
        ours = [size for pid, size in listed if pid in pids] or [size for _, size in listed]
        return sum(ours), len(ours)


def sample(nvml: Nvml, limit: int, pids: set[int]) -> dict[str, object]:
    """Asks until a line waits on stdin.

    A list need not be one moment's picture: bytes that change hands while it is made may count
    twice. So beside the highest sum the length of the longest time above the limit is told.
    """
    most = samples = processes = over = 0
    worst_gap = longest_over = 0.0
    started = last = within = time.monotonic()
    while samples % BETWEEN_LOOKS or not select.select([sys.stdin], [], [], 0)[0]:
        total, listed = nvml.used(pids)
        now = time.monotonic()
        most, processes = max(most, total), max(processes, listed)
        worst_gap, last = max(worst_gap, now - last), now
        samples += 1
        if total <= limit:
            within = now
        else:
            over += 1
            longest_over = max(longest_over, now - within)
    sys.stdin.readline()
    seconds = last - started
    return {
        "max_bytes": most,
        "samples": samples,
        "samples_over": over,
        "longest_over_ms": round(longest_over * 1000, 3),
        "seconds": round(seconds, 3),
        "samples_per_second": round(samples / seconds) if seconds else 0,
        "longest_gap_ms": round(worst_gap * 1000, 3),
        "most_processes": processes,
    }


def main() -> None:
    """Obeys until stdin ends."""
    nvml = Nvml()
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        command, *words = line.split()
        numbers = [int(word) for word in words]
        if command == "used":
            answer: object = nvml.used(set(numbers))[0]
        elif command == "device":
            answer = nvml.device_used()
        else:
            answer = sample(nvml, numbers[0], set(numbers[1:]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
