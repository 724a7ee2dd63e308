"""PyTorch inside a memory limit: training and a captured graph, then more than fits, then again.

The allocator's mode comes from PYTORCH_CUDA_ALLOC_CONF.
"""

from __future__ import annotations

import gc
from typing import Any

import evidence
import memory_limit
import torch_training


def product(torch: Any) -> str:  # noqa: ANN401
    """A fixed product's fingerprint."""
    values = torch.arange(1 << 18, dtype=torch.float32).reshape(512, 512).cuda() % 7
    return evidence.digest((values @ values).cpu().numpy())


def half_of_it(torch: Any) -> None:  # noqa: ANN401
    """2.5 GiB that fit, checked by their sums."""
    blocks = [torch.full((256 << 18,), i, dtype=torch.int32, device="cuda") for i in range(10)]
    evidence.tell("ten blocks", [int(block[::4096].sum().item()) for block in blocks])


def too_much(torch: Any) -> None:  # noqa: ANN401
    """To the limit and beyond, with the framework's own error, and on."""
    free, total = torch.cuda.mem_get_info()
    memory_limit.tell("total", total)
    memory_limit.tell("free is less", free < total)
    memory_limit.tell("properties total", torch.cuda.get_device_properties(0).total_memory)

    def allocate(size: int) -> Any:  # noqa: ANN401
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    memory_limit.refused(allocate, 64, torch.OutOfMemoryError)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    again = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    memory_limit.tell("a gibibyte after freeing", int(again[:: 1 << 20].sum().item()))


def main() -> None:
    """Fits, does not fit, goes on."""
    (torch,) = evidence.need("torch")
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        raise SystemExit(evidence.SKIPPED)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    evidence.tell("allocator", torch.cuda.get_allocator_backend())
    torch_training.train(torch)
    torch_training.capture(torch)
    half_of_it(torch)
    torch.cuda.empty_cache()
    if memory_limit.LIMIT:
        too_much(torch)
        torch.cuda.empty_cache()
    evidence.tell("product", product(torch))
    torch_training.capture(torch)
    memory_limit.leave()


if __name__ == "__main__":
    main()
