"""PyTorch: a deterministic training that tells when each of its steps was done.

`frozen_training.py STEPS EVERY`. Says "ready", waits for a line, and says "at N" after every EVERY
steps; at the end one line of JSON: the last loss, a fingerprint of all losses and one of the
weights, which are the same in every run, and `done_ns`, CLOCK_MONOTONIC when each step had ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import evidence

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def train(torch: Any, steps: int, every: int) -> dict[str, object]:  # noqa: ANN401
    """The training; each step waits for its loss, so that a step that ended was on the GPU."""
    nn = torch.nn
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3, stride=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 15 * 15, 10)).cuda()
    inputs = torch.randn(64, 3, 32, 32).cuda()
    targets = torch.randint(0, 10, (64,)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses: list[float] = []
    done_ns: list[int] = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
        done_ns.append(time.monotonic_ns())
        if (step + 1) % every == 0:
            print(f"at {step + 1}", flush=True)
    weights = [evidence.digest(each.detach().cpu().numpy()) for each in model.parameters()]
    told = " ".join(each.hex() for each in losses)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return {
        "last": losses[-1].hex(),
        "losses": hashlib.sha256(told.encode()).hexdigest()[:16],
        "weights": hashlib.sha256(" ".join(weights).encode()).hexdigest()[:16],
        "done_ns": done_ns,
        "libgpufence": "libgpufence.so" in maps,
    }


def main() -> None:
    """See the module's text."""
    (torch,) = evidence.need("torch")
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        raise SystemExit(evidence.SKIPPED)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # The first optimizer imports PyTorch's compiler, for seconds.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    print("ready", flush=True)
    if sys.stdin.readline():
        print(json.dumps(train(torch, int(sys.argv[1]), int(sys.argv[2]))), flush=True)


if __name__ == "__main__":
    main()
