"""A kernel that computes for a while, by cuda-bindings: the driver's own calls and codes."""

from __future__ import annotations

import ctypes
from typing import Any

KERNEL = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry mix(.param .u64 values, .param .u32 rounds)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<7>;
    .reg .f32 %f<4>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [values];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd2, %rd2, %rd3;
    cvt.rn.f32.u32 %f1, %r5;
    mov.f32 %f2, 0f3F7FBE77;
    mov.f32 %f3, 0f3F000000;
    mov.u32 %r6, 0;
again:
    fma.rn.f32 %f1, %f1, %f2, %f3;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p1, %r6, %r1;
    @%p1 bra again;
    st.global.f32 [%rd2], %f1;
    ret;
}
\x00"""
BLOCK = 256


class RefusedError(Exception):
    """A call that did not answer CUDA_SUCCESS; its text is the code's name."""


class Mix:
    """The kernel loaded, with `count` values of its own."""

    def __init__(self, driver: Any, rounds: int, count: int) -> None:  # noqa: ANN401
        self._driver, self._count = driver, count
        self._context = self._check(driver.cuDevicePrimaryCtxRetain(0))
        self._check(driver.cuCtxSetCurrent(self._context))
        module = self._check(driver.cuModuleLoadData(KERNEL))
        self._kernel = self._check(driver.cuModuleGetFunction(module, b"mix"))
        self._values = self._check(driver.cuMemAlloc(4 * count))
        self._arguments = ((int(self._values), rounds), (ctypes.c_void_p, ctypes.c_uint32))
        self._held: list[Any] = []

    def step(self) -> None:
        """One launch."""
        grid = (self._count // BLOCK, 1, 1, BLOCK, 1, 1)
        self._check(self._driver.cuLaunchKernel(self._kernel, *grid, 0, 0, self._arguments, 0))

    def wait(self) -> None:
        """For all launches."""
        self._check(self._driver.cuCtxSynchronize())

    def once(self, address: int) -> None:
        """One launch, its values to the host's address."""
        self.step()
        self._check(self._driver.cuMemcpyDtoH(address, self._values, 4 * self._count))

    def allocate(self, size: int) -> None:
        """Memory that is held until give_back()."""
        self._held.append(self._check(self._driver.cuMemAlloc(size)))

    def give_back(self) -> None:
        """Free what allocate() took."""
        while self._held:
            self._check(self._driver.cuMemFree(self._held.pop()))

    def _check(self, answer: tuple[Any, ...]) -> Any:  # noqa: ANN401
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise RefusedError(answer[0].name)
        return answer[1] if len(answer) == 2 else answer[1:]
