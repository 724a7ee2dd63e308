"""PyTorch training with working sets of given sizes, one after the other: milliseconds a step.

    oversold_torch.py MIB ...

With GPUFENCE_TEST_ALLOCATOR every tensor comes from that library (oversold_managed.c). One line of
JSON for each size: what was reserved, the median step, and the last loss, which is the same
wherever memory lies.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
from typing import Any

import evidence

WIDTH = 2048
BATCH = 1024
# One layer: weights, gradients and two moments of 16 MiB, two activations of 8 MiB.
LAYER_MIB = 80
WARM_UP_STEPS = 4
STEPS = 12


def use_allocator(torch: Any, library: str) -> None:  # noqa: ANN401
    """Everything that is allocated from here on, by the library."""
    memory = torch.cuda.memory
    memory.change_current_allocator(
        memory.CUDAPluggableAllocator(library, "take_managed", "give_managed")
    )


def train(torch: Any, layers: int) -> dict[str, object]:  # noqa: ANN401
    """Steps of a deep perceptron under Adam, each timed on the device."""
    torch.manual_seed(7)
    blocks: list[Any] = []
    for _ in range(layers):
        blocks += [torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU()]
    model = torch.nn.Sequential(*blocks).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    times, losses = [], []
    for _ in range(WARM_UP_STEPS + STEPS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        optimizer.zero_grad(set_to_none=False)
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        ended.record()
        torch.cuda.synchronize()
        times.append(began.elapsed_time(ended))
        losses.append(loss.item())
    return {
        "step_ms": round(statistics.median(times[WARM_UP_STEPS:]), 3),
        "first_ms": round(times[0], 1),
        "loss": losses[-1].hex(),
    }


def main() -> None:
    """Every size in a state that the one before left nothing in."""
    (torch,) = evidence.need("torch")
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        raise SystemExit(evidence.SKIPPED)
    library = os.environ.get("GPUFENCE_TEST_ALLOCATOR")
    if library:
        use_allocator(torch, library)
    train(torch, 2)  # loads code, so that it is not in the first figure
    for size in map(int, sys.argv[1:]):
        gc.collect()
        if not library:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        done = train(torch, max(1, size // LAYER_MIB))
        if not library:
            done["reserved_mib"] = torch.cuda.max_memory_reserved() >> 20
        free, total = torch.cuda.mem_get_info()
        done |= {"mib": size, "used_mib": (total - free) >> 20, "total_mib": total >> 20}
        print(json.dumps(done, sort_keys=True), flush=True)


if __name__ == "__main__":
    main()
