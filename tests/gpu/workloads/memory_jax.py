"""JAX inside a memory limit.

XLA_PYTHON_CLIENT_PREALLOCATE and XLA_PYTHON_CLIENT_MEM_FRACTION choose how it takes its memory.
"""

from __future__ import annotations

import os

import evidence
import memory_limit

# jax_grad prefers no preallocation; here XLA's own default is what is tried.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "true")


def main() -> None:
    """Fits, does not fit, goes on."""
    import jax_grad  # sets XLA's flags, which are read when JAX is first used

    jax, numpy = evidence.need("jax", "numpy")
    jax_grad.main()
    ones = jax.numpy.ones((256, 1 << 20), jax.numpy.float32)
    evidence.tell("sum of a gibibyte", float(ones[:, 0].sum()))
    del ones
    if memory_limit.LIMIT:
        statistics = jax.devices()[0].memory_stats() or {}
        memory_limit.tell("bytes_limit", statistics.get("bytes_limit", -1))

        def allocate(size: int) -> object:
            return jax.numpy.zeros((size // 4,), jax.numpy.float32).block_until_ready()

        memory_limit.refused(allocate, 256, jax.errors.JaxRuntimeError)
        again = jax.numpy.ones((1 << 28,), jax.numpy.float32)
        memory_limit.tell("a gibibyte after freeing", float(again[:: 1 << 18].sum()))
        del again
    values = jax.numpy.arange(1 << 16, dtype=jax.numpy.float32).reshape(256, 256) % 7
    evidence.tell("product", evidence.digest(numpy.asarray(values @ values)))
    memory_limit.leave()


if __name__ == "__main__":
    main()
