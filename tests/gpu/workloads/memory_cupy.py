"""CuPy inside a memory limit: its own pool, or the stream-ordered one (argument "async")."""

from __future__ import annotations

import sys

import evidence
import memory_limit


def main() -> None:
    """Fits, does not fit, goes on."""
    (cupy,) = evidence.need("cupy")
    if "async" in sys.argv:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    blocks = [cupy.full(256 << 18, number, dtype=cupy.int32) for number in range(10)]
    evidence.tell("ten blocks", [int(block[::4096].sum()) for block in blocks])
    blocks.clear()
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    if memory_limit.LIMIT:
        free, total = cupy.cuda.runtime.memGetInfo()
        memory_limit.tell("total", total)
        memory_limit.tell("free is less", free < total)

        def allocate(size: int) -> object:
            return cupy.empty(size, dtype=cupy.uint8)

        errors = (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError)
        memory_limit.refused(allocate, 64, errors)
        pool.free_all_blocks()
        cupy.cuda.Device().synchronize()
        again = cupy.ones(1 << 30, dtype=cupy.uint8)
        memory_limit.tell("a gibibyte after freeing", int(again[:: 1 << 20].sum()))
        del again
        pool.free_all_blocks()
    values = cupy.arange(1 << 16, dtype=cupy.float32).reshape(256, 256) % 7
    evidence.tell("product", evidence.digest(cupy.asnumpy(values @ values)))
    memory_limit.leave()


if __name__ == "__main__":
    main()
