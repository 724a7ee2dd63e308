"""The same short training again and again, in one process: what a soak calls a real job.

`soak_training.py torch|spin`: says "ready", and for each line of stdin trains anew and says a
fingerprint of the weights, which is always the same. Spin learns nothing: a rehearsal, also over
the simulated driver.
"""

from __future__ import annotations

import sys

from frozen_training import spin_step, torch_step, train

STEPS = 100


def main() -> None:
    """See the module's text."""
    spins = spin_step() if sys.argv[1] == "spin" else None
    print("ready", flush=True)
    for _ in sys.stdin:
        step, weights = spins or torch_step()
        print(train(step, weights, STEPS, STEPS + 1)["weights"], flush=True)


if __name__ == "__main__":
    main()
