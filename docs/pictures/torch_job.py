"""A PyTorch job for the picture of `gpufence top`: trains for a while, at times asks for too much.

Usage: torch_job.py SECONDS BATCH GREED_GIB
BATCH sizes the work of a step; every second it tries GREED_GIB more, gives them back, and goes on
when they are refused.
"""

from __future__ import annotations

import sys
import time

import torch


def main(seconds: float, batch: int, greed_gib: float) -> None:
    """Train until the time is over."""
    width = 4096
    layers = [torch.nn.Linear(width, width) for _ in range(4)]
    model = torch.nn.Sequential(*layers).cuda().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(batch, width, device="cuda", dtype=torch.half)
    end, refused, steps, asked = time.monotonic() + seconds, 0, 0, time.monotonic()
    print("training", flush=True)
    while time.monotonic() < end:
        optimizer.zero_grad()
        model(data).float().pow(2).mean().backward()
        optimizer.step()
        steps += 1
        if steps % 16 == 0:
            torch.cuda.synchronize()
        if time.monotonic() > asked + 1:
            asked = time.monotonic()
            refused += not fits(greed_gib)
    print(f"{steps} steps, {refused} refused", flush=True)


def fits(gib: float) -> bool:
    """Whether so much more can be had."""
    try:
        torch.empty(int(gib * 2**30), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return False
    torch.cuda.empty_cache()
    return True


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
