"""By how much CUPTI's record of a kernel is longer than the kernel was.

Each block of a spinning kernel writes down when it began and ended, by the clock that CUPTI reads,
too. What a record has on top is launching and ending, the same for kernels of any length, and much
of one that takes a few microseconds. Prints one line of JSON: {"excess_ns": in the middle, "by_us":
{length in microseconds: the same}}.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import evidence
import kernel_records

LENGTHS_US = (5, 15, 50, 200)
KERNELS = 200  # of each length, one right behind the other
BLOCKS = 132
SOURCE = r"""
__device__ unsigned long long Now() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void Spin(unsigned long long ns, ulonglong2* spans) {
  const unsigned long long begin = Now();
  unsigned long long now = begin;
  while (now - begin < ns) now = Now();
  spans[blockIdx.x] = make_ulonglong2(begin, now);
}
"""


def excesses_ns(cupy: Any, records: kernel_records.KernelRecords, length_us: int) -> list[int]:  # noqa: ANN401
    """What each record of kernels of one length has on top of what the kernel says."""
    spin = cupy.RawKernel(SOURCE, "Spin")
    spans = cupy.zeros((KERNELS, BLOCKS, 2), dtype=cupy.uint64)
    cupy.cuda.Device().synchronize()
    records.begin()
    for number in range(KERNELS):
        spin((BLOCKS,), (1,), (cupy.uint64(1_000 * length_us), spans[number]))
    cupy.cuda.Device().synchronize()
    seen = records.end()
    told = cupy.asnumpy(spans[:, :, 1].max(axis=1) - spans[:, :, 0].min(axis=1))
    return [end - begin - int(ran) for (begin, end), ran in zip(seen, told, strict=True)]


def main() -> None:
    """Measures every length, the first one twice, since the first kernels load their code."""
    (cupy,) = evidence.need("cupy")
    records = kernel_records.KernelRecords()
    excesses_ns(cupy, records, LENGTHS_US[0])
    by_us = {us: statistics.median(excesses_ns(cupy, records, us)) for us in LENGTHS_US}
    print(json.dumps({"excess_ns": statistics.median(by_us.values()), "by_us": by_us}))


if __name__ == "__main__":
    main()
