"""A deterministic training that tells when each of its steps was done.

`frozen_training.py torch|spin STEPS EVERY`. Says "ready", waits for a line, and says "at N" after
every EVERY steps; at the end one line of JSON: the last loss, a fingerprint of all losses and one
of the weights, which are the same in every run, and `done_ns`, CLOCK_MONOTONIC when each step had
ended. Spin needs nothing but the driver and learns nothing: a rehearsal, also over the simulated
one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence
import live_load

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


Step = Callable[[], float]


def torch_step() -> tuple[Step, Callable[[], list[str]]]:
    """A step, which waits for its loss: one that ended was on the GPU. And the weights' prints."""
    (torch,) = evidence.need("torch")
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU")
        raise SystemExit(evidence.SKIPPED)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    nn = torch.nn
    # The first optimizer imports PyTorch's compiler, for seconds.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    state: dict[str, Any] = {}

    def begin() -> None:
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(32, 16, 3, stride=2), nn.ReLU(), nn.Flatten()]
        state["model"] = model = nn.Sequential(*layers, nn.Linear(16 * 15 * 15, 10)).cuda()
        state["inputs"] = torch.randn(64, 3, 32, 32).cuda()
        state["targets"] = torch.randint(0, 10, (64,)).cuda()
        state["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> float:
        if not state:  # only now: whoever imports does not take the GPU
            begin()
        state["optimizer"].zero_grad()
        loss = nn.functional.cross_entropy(state["model"](state["inputs"]), state["targets"])
        loss.backward()
        state["optimizer"].step()
        return float(loss.item())

    def weights() -> list[str]:
        parameters = state["model"].parameters()
        return [evidence.digest(each.detach().cpu().numpy()) for each in parameters]

    return step, weights


def spin_step() -> tuple[Step, Callable[[], list[str]]]:
    """A kernel of a millisecond."""
    made: list[Callable[[], None]] = []
    count = itertools.count()

    def step() -> float:
        if not made:
            made.append(live_load.spin(live_load.Driver()))
        made[0]()
        return float(next(count))

    return step, lambda: []


def train(step: Step, weights: Callable[[], list[str]], steps: int, every: int) -> dict[str, Any]:
    """The training."""
    losses: list[float] = []
    done_ns: list[int] = []
    for number in range(1, steps + 1):
        losses.append(step())
        done_ns.append(time.monotonic_ns())
        if number % every == 0:
            print(f"at {number}", flush=True)
    told = " ".join(each.hex() for each in losses)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return {
        "last": losses[-1].hex(),
        "losses": hashlib.sha256(told.encode()).hexdigest()[:16],
        "weights": hashlib.sha256(" ".join(weights()).encode()).hexdigest()[:16],
        "done_ns": done_ns,
        "libgpufence": "libgpufence.so" in maps,
    }


def main() -> None:
    """See the module's text."""
    way, steps, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    step, weights = torch_step() if way == "torch" else spin_step()
    print("ready", flush=True)
    if sys.stdin.readline():
        print(json.dumps(train(step, weights, steps, every)), flush=True)


if __name__ == "__main__":
    main()
