"""The same short training again and again, in one process: what a soak calls a real job.

`soak_training.py torch|spin`: trains once, says "ready", and for each line of stdin trains anew and
says a fingerprint of the weights, which is always the same. Spin learns nothing: a rehearsal, also
over the simulated driver.
"""

from __future__ import annotations

import sys

from frozen_training import spin_step, torch_step, train

STEPS = 100


def main() -> None:
    """See the module's text."""
    spins = spin_step() if sys.argv[1] == "spin" else None

    def learned() -> str:
        step, weights = spins or torch_step()
        return str(train(step, weights, STEPS, STEPS + 1)["weights"])

    learned()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(learned(), flush=True)


if __name__ == "__main__":
    main()
