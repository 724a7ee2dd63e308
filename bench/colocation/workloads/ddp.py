"""DistributedDataParallel: one process for each GPU, gradients summed over all of them.

The processes agree by a flag every few steps whether to go on, so that none waits for one that has
ended. Rank 0 tells the figures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from .protocol import Figures, Run

WIDTH, DEPTH, BATCH = 4096, 4, 2048
AHEAD = 8  # steps from flag to flag
WARM_UPS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which process this is, and the file by which they meet."""
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--meet", type=Path, required=True, help="a file of this job alone")


def prepare(torch: Any, options: argparse.Namespace) -> Run:  # noqa: ANN401
    """See workloads/protocol.py."""
    nn, spread = torch.nn, torch.distributed
    torch.cuda.set_device(options.rank)
    meeting = f"file://{options.meet.resolve()}"
    spread.init_process_group("nccl", meeting, rank=options.rank, world_size=options.ranks)
    parts = [part for _ in range(DEPTH) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*parts).to("cuda", torch.bfloat16)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[options.rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    for _ in range(WARM_UPS):
        step()
    flag = torch.zeros(1, device="cuda")
    spread.all_reduce(flag)
    torch.cuda.synchronize()

    def run(seconds: float) -> Figures:
        steps = 0
        begin = time.perf_counter()
        ended = False
        while not ended:
            for _ in range(AHEAD):
                step()
            steps += AHEAD
            flag.fill_(float(time.perf_counter() - begin >= seconds))
            spread.all_reduce(flag)
            ended = bool(flag.item() > 0)
        return {"rate": steps / (time.perf_counter() - begin), "steps": steps}

    return run
