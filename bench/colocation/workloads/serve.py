"""A model server: Poisson requests, one after the other, each through a 12-layer transformer.

A request takes the GPU about 2 ms. It is run eagerly, so that the host has part in its latency, or
as one captured graph. Latency reaches from its arrival to its result on the host.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from colocation.figures import percentile

from . import layers
from .arrivals import arrivals
from .protocol import Figures, Run

SHAPE = layers.Shape(layers=12, width=1024, heads=16, context=256, words=8192)
BATCH = 8
WARM_UPS = 20
WAKE_S = 0.0002  # a sleep ends late by about as much; the rest is spun
MOST_TIMES = 3.0  # of its seconds: a server that falls behind ends then


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the program."""
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second (60)")
    parser.add_argument("--load", type=float, help="the same as percent of the GPU's time")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between bursts (none)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--captured", action="store_true", help="a CUDA graph of a request")


def serve(request: Callable[[], None], due: list[tuple[float, bool]], seconds: float) -> Figures:
    """Answers all requests; seconds from the first moment on at which they arrive."""
    latencies_ms, firsts_ms = [], []
    begin = time.perf_counter()
    for at, is_first in due:
        wait = begin + at - time.perf_counter()
        if wait > WAKE_S:
            time.sleep(wait - WAKE_S)
        while time.perf_counter() < begin + at:
            pass
        request()
        now = time.perf_counter()
        latencies_ms.append((now - begin - at) * 1e3)
        if is_first:
            firsts_ms.append(latencies_ms[-1])
        if now - begin > MOST_TIMES * seconds:
            break
    taken = max(seconds, time.perf_counter() - begin)
    figures: Figures = {f"p{part}_ms": percentile(latencies_ms, part) for part in (50, 95, 99)}
    figures |= {"rate": len(latencies_ms) / taken, "max_ms": max(latencies_ms, default=0.0)}
    figures |= {"count": len(latencies_ms), "unserved": len(due) - len(latencies_ms)}
    if firsts_ms:
        figures["first_ms"] = max(firsts_ms)
    return figures


def prepare(torch: Any, options: argparse.Namespace) -> Run:  # noqa: ANN401
    """See workloads/protocol.py."""
    model = layers.build(torch, SHAPE, "cuda", torch.bfloat16)
    tokens = torch.randint(0, SHAPE.words, (BATCH, SHAPE.context), device="cuda")
    results: list[Any] = []
    graph = layers.captured(torch, lambda: results.append(layers.forward(torch, model, tokens)))
    gpu_ms = layers.gpu_ms(torch, graph)

    def eager() -> None:
        layers.forward(torch, model, tokens).cpu()

    def replayed() -> None:
        graph.replay()
        results[-1].cpu()

    request = replayed if options.captured else eager

    for _ in range(WARM_UPS):
        request()
    rate = options.rate if options.load is None else options.load / 100 / (gpu_ms / 1e3)

    seeds = count(options.seed)

    def run(seconds: float) -> Figures:
        figures = serve(request, arrivals(rate, seconds, options.pause, next(seeds)), seconds)
        busy = float(figures["rate"]) * gpu_ms / 10
        return {**figures, "gpu_ms": gpu_ms, "busy": busy, "asked": rate}

    return run
