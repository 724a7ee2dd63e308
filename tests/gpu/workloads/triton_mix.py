"""A Triton kernel that computes for a while."""

from __future__ import annotations

from typing import Any

import evidence

triton, tl = evidence.need("triton", "triton.language")

BLOCK = 256


@triton.jit  # type: ignore[untyped-decorator]
def mix(values, rounds, block: tl.constexpr):  # type: ignore[no-untyped-def, name-defined]  # noqa: ANN001, ANN201
    """As many rounds of arithmetic on each value."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(values + at)
    for _ in range(rounds):
        value = value * 0.999 + 0.5
    tl.store(values + at, value)


def run(values: Any, rounds: int) -> None:  # noqa: ANN401
    """One launch over a vector whose length is a multiple of BLOCK."""
    mix[(values.numel() // BLOCK,)](values, rounds, block=BLOCK)
