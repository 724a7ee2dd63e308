"""A small jitted JAX training step under a core limit: its rate, and how long its kernels ran."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import evidence
import steps


def trace_of(jax: Any, run: Callable[[], object]) -> list[dict[str, Any]]:  # noqa: ANN401
    """The events that JAX's profiler saw during a run, as Chrome's trace viewer has them."""
    events = []
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        for path in Path(folder).rglob("*.trace.json.gz"):
            with gzip.open(path) as file:
                events += json.load(file)["traceEvents"]
    return events


def kernel_spans(events: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """When kernels ran, in nanoseconds: a process is a device there, and a thread a stream."""
    names = {
        (one["name"], one["pid"], one.get("tid")): one["args"]["name"]
        for one in events
        if one.get("name") in ("process_name", "thread_name")
    }
    gpus = {key[1] for key, name in names.items() if key[0] == "process_name" and "GPU" in name}
    spans = []
    for one in events:
        stream = names.get(("thread_name", one.get("pid"), one.get("tid")), "")
        runs = one.get("ph") == "X" and one["pid"] in gpus and stream.startswith("Stream")
        if runs and not one["name"].startswith("Mem"):
            begin_ns = round(one["ts"] * 1000)
            spans.append((begin_ns, begin_ns + round(one["dur"] * 1000)))
    return spans


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

    def spans(seconds: float) -> list[tuple[int, int]]:
        return kernel_spans(trace_of(jax, lambda: steps.run(step, wait, seconds)))

    steps.serve(step, wait, spans)


if __name__ == "__main__":
    main()
