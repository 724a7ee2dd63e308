"""What an ordinary CUDA program does, by ctypes: the guest of ci/demo.

Knows nothing of gpufence. Prints one line per step; exits 1 with the failing call's code.
`--probe` only says, by its exit status, whether a driver with a device is there. `--fill` takes
memory until the driver refuses; it fails when that is later than the total it was told.
"""

from __future__ import annotations

import ctypes
import sys

MIB = 1 << 20
OUT_OF_MEMORY = 2


class CallFailed(Exception):
    """A driver function returned something else than success."""


class Library:
    """A driver library whose calls raise when they fail."""

    def __init__(self, soname: str) -> None:
        self._library = ctypes.CDLL(soname)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns 0 for success."""
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise CallFailed(f"{name} returned {status}")


def main() -> int:
    """Run the steps; returns the exit status."""
    try:
        cuda = Library("libcuda.so.1")
        cuda.call("cuInit", 0)
        if "--probe" not in sys.argv[1:]:
            show_device(cuda)
            if "--fill" in sys.argv[1:]:
                return fill_memory(cuda)
            show_memory(cuda)
            show_management(Library("libnvidia-ml.so.1"))
    except (OSError, CallFailed) as error:
        if "--probe" not in sys.argv[1:]:
            print(f"demo program: {error}", file=sys.stderr)
        return 1
    return 0


def show_device(cuda: Library) -> None:
    """The first device, with a context of its own for what follows."""
    device, version, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    name, total = ctypes.create_string_buffer(96), ctypes.c_size_t()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    cuda.call("cuDeviceGet", ctypes.byref(device), 0)
    cuda.call("cuDeviceGetName", name, 96, device)
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda.call("cuCtxSetCurrent", context)
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    print(f"device   {name.value.decode()}, {total.value // MIB} MiB, CUDA {cuda_version}")


def show_memory(cuda: Library) -> None:
    """64 MiB allocated, filled on the device and read back."""
    size, pointer = 64 * MIB, ctypes.c_uint64()
    cuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    cuda.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0x5A), ctypes.c_size_t(size))
    host = ctypes.create_string_buffer(size)
    cuda.call("cuMemcpyDtoH_v2", host, pointer, ctypes.c_size_t(size))
    cuda.call("cuMemFree_v2", pointer)
    print(f"memory   {size // MIB} MiB filled and read back: {host.raw == b'Z' * size}")


def fill_memory(cuda: Library) -> int:
    """Pieces of 64 MiB until one is refused; 0 when that came in time and as out of memory."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    print(f"seen     {free.value // MIB} MiB free of {total.value // MIB} MiB")
    size, pieces = 64 * MIB, 0
    while pieces * size <= total.value:
        try:
            cuda.call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size))
        except CallFailed as refused:
            print(f"granted  {pieces * size // MIB} MiB, then {refused}")
            return 0 if str(refused).endswith(f" {OUT_OF_MEMORY}") else 1
        pieces += 1
    print(f"granted  {pieces * size // MIB} MiB: more than there is", file=sys.stderr)
    return 1


def show_management(nvml: Library) -> None:
    """The driver's version, as monitoring tools read it."""
    version = ctypes.create_string_buffer(96)
    nvml.call("nvmlInit_v2")
    nvml.call("nvmlSystemGetDriverVersion", version, 96)
    nvml.call("nvmlShutdown")
    print(f"driver   {version.value.decode()}")


if __name__ == "__main__":
    sys.exit(main())
