"""A language model whose decode step is one CUDA graph, replayed and waited for.

A step takes an H200 about 1.3 ms.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from colocation.figures import percentile

from . import layers
from .protocol import Figures, Run

SHAPE = layers.Shape(layers=24, width=2048, heads=16, context=512, words=16384)
BATCH = 8
WARM_UPS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the program."""
    parser.add_argument("--layers", type=int, default=SHAPE.layers, help="of the model (24)")


def paced(step: Callable[[], None], seconds: float) -> Figures:
    """Steps one after the other: their rate and how long each took."""
    steps_ms = []
    begin = last = time.perf_counter()
    while last - begin < seconds:
        step()
        now = time.perf_counter()
        steps_ms.append((now - last) * 1e3)
        last = now
    figures: Figures = {f"p{part}_ms": percentile(steps_ms, part) for part in (50, 95, 99)}
    return {**figures, "max_ms": max(steps_ms), "rate": len(steps_ms) / (last - begin)}


def prepare(torch: Any, options: argparse.Namespace) -> Run:  # noqa: ANN401
    """See workloads/protocol.py."""
    shape = layers.Shape(options.layers, SHAPE.width, SHAPE.heads, SHAPE.context, SHAPE.words)
    model = layers.build(torch, shape, "cuda", torch.bfloat16)
    state = layers.begin_decoding(torch, model, BATCH, "cuda", torch.bfloat16)
    graph = layers.captured(torch, lambda: layers.decode(torch, model, state, pieces=False))
    stream = torch.cuda.current_stream()

    def step() -> None:
        graph.replay()
        stream.synchronize()

    for _ in range(WARM_UPS):
        step()
    gpu_ms = layers.gpu_ms(torch, graph)

    # The graph knows addresses alone: what they belong to lives as long as the call.
    def run(seconds: float, _kept: object = (model, state)) -> Figures:
        figures = paced(step, seconds)
        busy = float(figures["rate"]) * gpu_ms / 10
        return {**figures, "gpu_ms": gpu_ms, "busy": busy}

    return run
