"""NCCL inside a memory limit: one process, one GPU, through torch.distributed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import evidence
import memory_limit
import memory_torch


def reduce(torch: Any) -> None:  # noqa: ANN401
    """An all-reduce whose sum is its input, since there is one rank."""
    values = torch.arange(1 << 20, dtype=torch.float32).cuda()
    torch.distributed.all_reduce(values)
    torch.cuda.synchronize()
    evidence.tell("all_reduce", evidence.digest(values.cpu().numpy()))


def main() -> None:
    """Fits, does not fit, goes on."""
    (torch,) = evidence.need("torch")
    if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        print("PyTorch sees no GPU, or no NCCL")
        raise SystemExit(evidence.SKIPPED)
    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{Path(folder) / 'meeting'}"
        torch.distributed.init_process_group("nccl", init_method=meeting, rank=0, world_size=1)
        reduce(torch)
        if memory_limit.LIMIT:
            memory_torch.too_much(torch)
            torch.cuda.empty_cache()
        reduce(torch)
        torch.distributed.destroy_process_group()
    memory_limit.leave()


if __name__ == "__main__":
    main()
