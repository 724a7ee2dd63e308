"""Numba inside a memory limit: a kernel, too much, and the kernel again."""

from __future__ import annotations

import evidence
import memory_limit
import numba_kernel


def main() -> None:
    """Fits, does not fit, goes on."""
    (numpy,) = evidence.need("numpy")
    numba_kernel.restore_removed_names(numpy)
    (cuda,) = evidence.need("numba.cuda")
    if not cuda.is_available():
        print("Numba sees no GPU")
        raise SystemExit(evidence.SKIPPED)

    @cuda.jit
    def double(values):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        i = cuda.grid(1)
        if i < values.size:
            values[i] = values[i] * 2

    def run() -> str:
        on_device = cuda.to_device(numpy.arange(100_000, dtype=numpy.float32))
        double[400, 256](on_device)
        return evidence.digest(on_device.copy_to_host())

    evidence.tell("doubled", run())
    if memory_limit.LIMIT:
        memory_limit.tell("total", cuda.current_context().get_memory_info().total)

        def allocate(size: int) -> object:
            return cuda.device_array(size, dtype=numpy.uint8)

        # The type's place in the package has moved; its message names the driver's code.
        memory_limit.refused(allocate, 64, Exception)
        again = cuda.device_array(1 << 30, dtype=numpy.uint8)
        memory_limit.tell("a gibibyte after freeing", again.size)
        del again
    evidence.tell("doubled again", run())
    memory_limit.leave()


if __name__ == "__main__":
    main()
