"""What a program inside a limit is shown: CUDA's and NVML's answers as one JSON object.

Asked by ctypes, as any client would. The caller puts the library in front.
"""

from __future__ import annotations

import ctypes
import json
import struct

ENTRY = struct.Struct("<I4xQ8x")


def ask_cuda() -> dict[str, int]:
    """With a context of this process's own."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    free, total, device_total = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
    for code in (
        cuda.cuInit(0),
        cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
        cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(256 << 20)),
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
        cuda.cuDeviceTotalMem_v2(ctypes.byref(device_total), 0),
    ):
        assert code == 0, code
    return {"free": free.value, "total": total.value, "device_total": device_total.value}


def ask_nvml() -> dict[str, object]:
    """Both forms of the memory information, and the process list."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    handle = ctypes.c_void_p()
    first = (ctypes.c_ulonglong * 3)()
    second = ctypes.create_string_buffer(struct.pack("<I4x4Q", 40 | 2 << 24, 0, 0, 0, 0), 40)
    count = ctypes.c_uint(64)
    infos = ctypes.create_string_buffer(ENTRY.size * 64)
    for code in (
        nvml.nvmlInit_v2(),
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)),
        nvml.nvmlDeviceGetMemoryInfo(handle, first),
        nvml.nvmlDeviceGetMemoryInfo_v2(handle, second),
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), infos),
    ):
        assert code == 0, code
    listed = ENTRY.iter_unpack(memoryview(infos)[: ENTRY.size * count.value])
    return {
        "v1": dict(zip(("total", "free", "used"), first, strict=True)),
        "v2": dict(
            zip(
                ("total", "reserved", "free", "used"),
                struct.unpack("<I4x4Q", second.raw)[1:],
                strict=True,
            )
        ),
        "processes": {str(pid): size for pid, size in listed},
    }


def ask_pynvml() -> dict[str, int] | None:
    """NVIDIA's own Python client, where it is installed."""
    try:
        import pynvml
    except ImportError:
        return None
    pynvml.nvmlInit()
    info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    return {"total": info.total, "free": info.free, "used": info.used}


def ask_torch() -> dict[str, int] | None:
    """The runtime's cudaGetDeviceProperties and cudaMemGetInfo, where PyTorch is installed."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    return {
        "properties_total": torch.cuda.get_device_properties(0).total_memory,
        "info_total": torch.cuda.mem_get_info()[1],
    }


def main() -> None:
    """Everything once."""
    cuda = ask_cuda()
    shown = {"cuda": cuda, "nvml": ask_nvml(), "pynvml": ask_pynvml(), "torch": ask_torch()}
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
