"""Which process numbers NVML tells in this pid namespace, and what then fits, as one JSON object.

With "fill", inside a limit only, takes 64 MiB pieces until one is refused, and lets nvidia-smi tell
what it sees. Asked by ctypes, as any client would.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys

ENTRY = struct.Struct("<I4xQ8x")
MOST = 64
PIECE = 64 << 20


def fill(cuda: ctypes.CDLL) -> tuple[int, int]:
    """Pieces granted, and the code of the first refusal (0: none)."""
    address = ctypes.c_ulonglong()
    for count in range(4096):
        code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(PIECE))
        if code != 0:
            return count, code
    return 4096, 0


def listed() -> list[tuple[int, int]]:
    """Pairs of pid and bytes, as NVML tells them here."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle, count = ctypes.c_void_p(), ctypes.c_uint(MOST)
    infos = ctypes.create_string_buffer(ENTRY.size * MOST)
    for code in (
        nvml.nvmlInit_v2(),
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)),
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), infos),
    ):
        assert code == 0, code
    return list(ENTRY.iter_unpack(memoryview(infos)[: ENTRY.size * count.value]))


def smi() -> list[str]:
    """What nvidia-smi shows: its table, and its list of processes."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return []
    query = "--query-compute-apps=pid,used_memory"
    commands = ([path], [path, query, "--format=csv,noheader"])
    return [
        subprocess.run(words, capture_output=True, text=True, check=False).stdout
        for words in commands
    ]


def main() -> None:
    """Tells, and stays until a line comes, so that others can look at this process."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for code in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)):
        assert code == 0, code
    granted, refusal = fill(cuda) if "fill" in sys.argv else (0, 0)
    told = {"pid": os.getpid(), "namespace": os.stat("/proc/self/ns/pid").st_ino}
    told |= {"listed": listed(), "granted": granted * PIECE, "code": refusal}
    told["smi"] = smi() if "fill" in sys.argv else []
    print("ready", flush=True)
    print(json.dumps(told), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
