"""The programs over PyTorch by name, and how one is begun. The only place that imports PyTorch."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import ddp, decoder, generate, serve, train
from .protocol import Run, follow


@dataclass(frozen=True, slots=True)
class Program:
    """A workload: its options, and what prepares it."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    prepare: Callable[[Any, argparse.Namespace], Run]
    learns: bool = False  # keeps gradients


PROGRAMS = {
    "serve": Program(serve.add_arguments, serve.prepare),
    "train": Program(train.add_arguments, train.prepare, learns=True),
    "decoder": Program(decoder.add_arguments, decoder.prepare),
    "generate": Program(generate.add_arguments, generate.prepare),
    "ddp": Program(ddp.add_arguments, ddp.prepare, learns=True),
}


def options_of(words: Sequence[str]) -> tuple[Program, argparse.Namespace]:
    """A program and its options, by its command line; SystemExit with 2 for a wrong one."""
    parser = argparse.ArgumentParser(prog="bench/colocation.py work")
    chosen = parser.add_subparsers(dest="name", required=True)
    for name, program in PROGRAMS.items():
        program.add_arguments(chosen.add_parser(name))
    options = parser.parse_args(words)
    return PROGRAMS[options.name], options


def work(words: Sequence[str]) -> int:
    """Runs one program to its end; returns the exit status."""
    program, options = options_of(words)
    # Threads of the processor's own arithmetic would be neighbours to the other programs.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    if program.learns:
        # The first optimizer imports PyTorch's compiler, for seconds: before the GPU is taken.
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)

    def prepare() -> Run:
        torch.manual_seed(7)
        if program.learns:
            return program.prepare(torch, options)
        with torch.inference_mode():
            run = program.prepare(torch, options)

        def in_the_same_mode(seconds: float) -> dict[str, float | str]:
            with torch.inference_mode():
                return run(seconds)

        return in_the_same_mode

    return follow(prepare)
