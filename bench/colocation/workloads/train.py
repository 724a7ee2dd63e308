"""Training that saturates the GPU: a bf16 perceptron, some steps queued ahead of the host's waits.

A step takes an H200 about 4.5 ms.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

from .protocol import Figures, Run

WIDTH, DEPTH, BATCH = 4096, 3, 8192
AHEAD = 4  # steps from wait to wait; one such batch is always queued behind the one that runs
WARM_UPS = 6
RECORDED_S = 0.4  # of the end of a run, whose kernels tell how much of the time is its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the program."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--captured", action="store_true", help="a CUDA graph of a step")
    forms.add_argument("--eager", action="store_false", dest="captured", help="the default")


def stepper(torch: Any, depth: int, batch: int) -> Callable[[], None]:  # noqa: ANN401
    """One training step as a call."""
    nn = torch.nn
    parts = [part for _ in range(depth) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*parts).to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(batch, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def prepare(torch: Any, options: argparse.Namespace) -> Run:  # noqa: ANN401
    """See workloads/protocol.py."""
    from . import kernel_time, layers

    step = stepper(torch, DEPTH, BATCH)
    graph = layers.captured(torch, step)
    gpu_ms = layers.steady_gpu_ms(torch, graph)
    once = graph.replay if options.captured else step

    def run_for(seconds: float) -> int:
        marks = [torch.cuda.Event() for _ in range(2)]
        batches = 0
        begin = time.perf_counter()
        while batches == 0 or time.perf_counter() - begin < seconds:
            for _ in range(AHEAD):
                once()
            marks[batches % 2].record()
            if batches > 0:
                marks[(batches - 1) % 2].synchronize()
            batches += 1
        torch.cuda.synchronize()
        return batches * AHEAD

    for _ in range(WARM_UPS):
        once()
    kernel_time.step_ms(torch, lambda: run_for(0.0))  # the first records take the driver long

    # The graph knows addresses alone: what they belong to lives in `step`.
    def run(seconds: float, _kept: object = step) -> Figures:
        begin = time.perf_counter()
        steps = run_for(seconds - RECORDED_S)
        rate = steps / (time.perf_counter() - begin)
        now_ms = kernel_time.step_ms(torch, lambda: run_for(RECORDED_S))
        told: Figures = {"rate": rate, "steps": steps, "gpu_ms": gpu_ms, "busy": rate * gpu_ms / 10}
        return told if math.isnan(now_ms) else told | {"now_ms": now_ms, "ran": rate * now_ms / 10}

    return run
