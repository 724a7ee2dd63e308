"""Eager generation, bound by the host: hundreds of small kernels for a token, and a wait for it.

The GPU is busy for about a fourth of the time.
"""

from __future__ import annotations

import argparse
from typing import Any

from . import layers
from .decoder import paced
from .protocol import Figures, Run

SHAPE = layers.Shape(layers=12, width=768, heads=12, context=256, words=50257)
WARM_UPS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def prepare(torch: Any, options: argparse.Namespace) -> Run:  # noqa: ANN401
    """See workloads/protocol.py."""
    model = layers.build(torch, SHAPE, "cuda", torch.float16)
    state = layers.begin_decoding(torch, model, 1, "cuda", torch.float16)

    def decode() -> None:
        layers.decode(torch, model, state, pieces=True)

    def token() -> None:
        decode()
        state.tokens.item()  # whether the text has ended

    graph = layers.captured(torch, decode)
    gpu_ms = layers.gpu_ms(torch, graph)
    del graph
    for _ in range(WARM_UPS):
        token()

    def run(seconds: float) -> Figures:
        figures = paced(token, seconds)
        busy = float(figures["rate"]) * gpu_ms / 10
        return {**figures, "gpu_ms": gpu_ms, "busy": busy}

    return run
