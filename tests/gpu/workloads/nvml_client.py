"""An NVML client: NVIDIA's pynvml where it is installed, else plain ctypes."""

from __future__ import annotations

import ctypes

import evidence


def through_pynvml() -> None:
    """What monitoring tools ask."""
    (nvml,) = evidence.need("pynvml")
    nvml.nvmlInit()
    evidence.tell("driver", nvml.nvmlSystemGetDriverVersion())
    evidence.tell("count", nvml.nvmlDeviceGetCount())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    evidence.tell("name", nvml.nvmlDeviceGetName(handle))
    evidence.tell("uuid", nvml.nvmlDeviceGetUUID(handle))
    evidence.tell("total", nvml.nvmlDeviceGetMemoryInfo(handle).total)
    evidence.tell("bus", nvml.nvmlDeviceGetPciInfo(handle).busId)
    evidence.tell("processes", type(nvml.nvmlDeviceGetComputeRunningProcesses(handle)).__name__)
    evidence.tell("utilization", type(nvml.nvmlDeviceGetUtilizationRates(handle).gpu).__name__)
    try:
        nvml.nvmlDeviceGetHandleByIndex(4711)
    except nvml.NVMLError as error:
        evidence.tell("bad index", error)
    nvml.nvmlShutdown()


def through_ctypes() -> None:
    """The same by hand: dlopen by soname, dlsym, call."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        print(error)
        raise SystemExit(evidence.SKIPPED) from None
    count = ctypes.c_uint(0)
    evidence.tell("count before init", nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
    evidence.tell("init", nvml.nvmlInit_v2())
    evidence.tell("count status", nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
    evidence.tell("count", count.value)
    handle = ctypes.c_void_p()
    evidence.tell("handle", nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)))
    name = ctypes.create_string_buffer(96)
    evidence.tell("name status", nvml.nvmlDeviceGetName(handle, name, 96))
    evidence.tell("name", name.value.decode())
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    evidence.tell("error text", nvml.nvmlErrorString(13).decode())
    evidence.tell("shutdown", nvml.nvmlShutdown())


def main() -> None:
    """Both ways; the first only where it exists."""
    through_ctypes()
    try:
        through_pynvml()
    except SystemExit:
        evidence.tell("pynvml", "absent")
    evidence.leave()


if __name__ == "__main__":
    main()
