"""Triton inside a memory limit: a kernel compiled and launched, too much beside it, and again."""

from __future__ import annotations

import evidence
import memory_limit
import memory_torch
import triton_add


def main() -> None:
    """Fits, does not fit, goes on."""
    torch = triton_add.torch
    triton_add.main()
    if memory_limit.LIMIT:
        memory_torch.too_much(torch)
        torch.cuda.empty_cache()
    a = torch.arange(98_432, dtype=torch.float32).cuda()
    out = torch.empty_like(a)
    triton_add.add[(triton_add.triton.cdiv(out.numel(), 1024),)](a, a, out, out.numel(), block=1024)
    evidence.tell("once more", bool(torch.equal(out, a + a)))
    memory_limit.leave()


if __name__ == "__main__":
    main()
