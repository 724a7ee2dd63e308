"""cuda-bindings: NVIDIA's own Python binding, which finds everything by cuGetProcAddress."""

from __future__ import annotations

from typing import Any

import evidence

KERNEL = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry fill(.param .u64 out)
{
    .reg .b64 %rd<5>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r1;
    ret;
}
\x00"""


def main() -> None:
    """Memory, a pool, a module and a launch, each code checked."""
    driver, numpy = evidence.need("cuda.bindings.driver", "numpy")

    def check(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401
        code, *rest = answer
        assert code == driver.CUresult.CUDA_SUCCESS, code
        return rest[0] if len(rest) == 1 else rest

    check(driver.cuInit(0))
    evidence.tell("driver", check(driver.cuDriverGetVersion()))
    device = check(driver.cuDeviceGet(0))
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))
    module = check(driver.cuModuleLoadData(KERNEL))
    kernel = check(driver.cuModuleGetFunction(module, b"fill"))
    stream = check(driver.cuStreamCreate(0))
    memory = check(driver.cuMemAllocAsync(1024, stream))
    import ctypes

    arguments = ((int(memory),), (ctypes.c_void_p,))
    check(driver.cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
    host = numpy.zeros(256, dtype=numpy.uint32)
    check(driver.cuMemcpyDtoHAsync(host.ctypes.data, memory, 1024, stream))
    check(driver.cuStreamSynchronize(stream))
    evidence.tell("filled", bool((host == numpy.arange(256)).all()))
    check(driver.cuMemFreeAsync(memory, stream))
    refused = driver.cuMemAlloc(1 << 50)
    evidence.tell("a petabyte", refused[0])
    evidence.tell("total", check(driver.cuMemGetInfo())[1])
    check(driver.cuStreamDestroy(stream))
    check(driver.cuDevicePrimaryCtxRelease(device))
    evidence.leave()


if __name__ == "__main__":
    main()
