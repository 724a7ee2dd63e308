"""JAX for a given time, to be compared with itself under a core limit: `cores_jax.py SECONDS`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import evidence

WARM_UP_STEPS = 30
STEPS_AT_ONCE = 10


def main() -> None:
    """Prints the rate of a small jitted training step as JSON."""
    jax, numpy = evidence.need("jax", "jax.numpy")
    seconds = float(sys.argv[1])

    def loss(weights: Any, inputs: Any) -> Any:  # noqa: ANN401 - jax is untyped here
        for _ in range(8):
            inputs = numpy.tanh(inputs @ weights)
        return (inputs**2).mean()

    step = jax.jit(lambda weights, inputs: weights - 1e-3 * jax.grad(loss)(weights, inputs))
    weights = jax.random.normal(jax.random.PRNGKey(7), (1024, 1024)) / 32
    inputs = jax.random.normal(jax.random.PRNGKey(8), (2048, 1024))
    for _ in range(WARM_UP_STEPS):
        weights = step(weights, inputs)
    weights.block_until_ready()
    began = time.monotonic()
    steps = 0
    while time.monotonic() - began < seconds:
        for _ in range(STEPS_AT_ONCE):
            weights = step(weights, inputs)
        steps += STEPS_AT_ONCE
        weights.block_until_ready()
    print(json.dumps({"rate": steps / (time.monotonic() - began), "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
