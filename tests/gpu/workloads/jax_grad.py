"""JAX: the gradient of a small network, compiled, followed for some steps."""

from __future__ import annotations

import os

import evidence

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Tuning picks kernels by their speed, so two runs could compute in different orders.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")


def main() -> None:
    """Ten steps of gradient descent."""
    jax, numpy = evidence.need("jax", "numpy")
    if jax.default_backend() != "gpu":
        print(f"JAX runs on {jax.default_backend()}, not on a GPU")
        raise SystemExit(evidence.SKIPPED)
    random = numpy.random.default_rng(7)
    inputs = jax.numpy.asarray(random.standard_normal((64, 32), dtype=numpy.float32))
    wanted = jax.numpy.asarray(random.standard_normal((64, 4), dtype=numpy.float32))
    weights = [
        jax.numpy.asarray(random.standard_normal(shape, dtype=numpy.float32) * 0.1)
        for shape in ((32, 64), (64, 4))
    ]

    def loss(parameters):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        hidden = jax.numpy.tanh(inputs @ parameters[0])
        return ((hidden @ parameters[1] - wanted) ** 2).mean()

    step = jax.jit(jax.value_and_grad(loss))
    for number in range(10):
        value, gradients = step(weights)
        weights = [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]
        evidence.tell(f"loss {number}", float(value))
    for number, array in enumerate(weights):
        evidence.tell(f"weights {number}", evidence.digest(numpy.asarray(array)))
    evidence.leave()


if __name__ == "__main__":
    main()
