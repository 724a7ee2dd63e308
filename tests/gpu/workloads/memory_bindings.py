"""cuda-bindings inside a memory limit: the driver's own codes, as Python objects."""

from __future__ import annotations

from typing import Any

import cuda_bindings
import evidence
import memory_limit


class RefusedError(Exception):
    """A call that did not answer CUDA_SUCCESS."""


def main() -> None:
    """Too much, freed, and then the whole workload of cuda_bindings."""
    (driver,) = evidence.need("cuda.bindings.driver")

    def check(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401
        if answer[0] != driver.CUresult.CUDA_SUCCESS:
            raise RefusedError(answer[0].name)
        return answer[1] if len(answer) == 2 else answer[1:]

    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(0))
    check(driver.cuCtxSetCurrent(context))
    if memory_limit.LIMIT:
        memory_limit.tell("total", check(driver.cuMemGetInfo())[1])
        held = []

        def allocate(size: int) -> object:
            held.append(check(driver.cuMemAlloc(size)))
            return held[-1]

        memory_limit.refused(allocate, 64, RefusedError)
        for pointer in held:
            check(driver.cuMemFree(pointer))
        again = check(driver.cuMemAlloc(1 << 30))
        memory_limit.tell("a gibibyte after freeing", "granted")
        check(driver.cuMemFree(again))
    check(driver.cuDevicePrimaryCtxRelease(0))
    # The workload tells the device's total, which a limit changes.
    tell = evidence.tell
    evidence.tell = lambda name, value: tell(name, value) if name != "total" else None
    cuda_bindings.main()
    memory_limit.leave()


if __name__ == "__main__":
    main()
