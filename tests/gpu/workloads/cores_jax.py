"""A small jitted JAX training step under a core limit: its rate, and how long its kernels ran."""

from __future__ import annotations

from typing import Any

import evidence
import steps


def main() -> None:
    """Answers on stdout as steps.py says."""
    jax, numpy = evidence.need("jax", "jax.numpy")

    def loss(weights: Any, inputs: Any) -> Any:  # noqa: ANN401 - jax is untyped here
        for _ in range(8):
            inputs = numpy.tanh(inputs @ weights)
        return (inputs**2).mean()

    update = jax.jit(lambda weights, inputs: weights - 1e-3 * jax.grad(loss)(weights, inputs))
    state = [jax.random.normal(jax.random.PRNGKey(7), (1024, 1024)) / 32]
    inputs = jax.random.normal(jax.random.PRNGKey(8), (2048, 1024))

    def step() -> None:
        state[0] = update(state[0], inputs)

    def wait() -> None:
        state[0].block_until_ready()

    steps.serve(step, wait)


if __name__ == "__main__":
    main()
