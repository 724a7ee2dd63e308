"""CuPy: elementwise work, a product, a kernel compiled at run time, and its memory pool's books."""

from __future__ import annotations

import os
import tempfile

import evidence

SOURCE = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int count) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + y[i];
}
"""


def main() -> None:
    """Everything on the default stream and once on another."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CUPY_CACHE_DIR"] = cache
        (cupy,) = evidence.need("cupy")
        x = cupy.arange(1 << 16, dtype=cupy.float32) / 7
        y = cupy.sin(x) + 1
        evidence.tell("elementwise", evidence.digest(cupy.asnumpy(y)))
        square = x[: 128 * 128].reshape(128, 128)
        evidence.tell("product", evidence.digest(cupy.asnumpy(square @ square.T)))
        kernel = cupy.RawKernel(SOURCE, "saxpy")
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.wait_event(cupy.cuda.get_current_stream().record())
        with stream:
            kernel((256,), (256,), (cupy.float32(2.5), x, y, x.size))
        stream.synchronize()
        evidence.tell("raw kernel", evidence.digest(cupy.asnumpy(y)))
        evidence.tell("sum", float(y.sum()))
        pool = cupy.get_default_memory_pool()
        del y
        pool.free_all_blocks()
        evidence.tell("pool used", pool.used_bytes())
        evidence.tell("pool total", pool.total_bytes())
        evidence.tell("total", cupy.cuda.runtime.memGetInfo()[1])
        evidence.tell("driver", cupy.cuda.runtime.driverGetVersion())
        evidence.leave()


if __name__ == "__main__":
    main()
