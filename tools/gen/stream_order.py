"""Which functions put something into a stream that is no kernel, and what their hooks say first.

Owns that decision; its exceptions are the rules of `lib/api/stream-order.txt`. Must not know what
the core limiter makes of it, nor which hooks are written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import rules
from .filters import param_names
from .ir import ENFORCED_KINDS, Function
from .rules import Rule

FILE = "stream-order.txt"
RENDERED = "stream_order.cpp"
_BY_HAND = "by hand, "
# The GPU's own work, as kernels are: what begins so, and what is said before it.
_LIKE_KERNELS = {"cuMemset": "LeaveKernelsToFill", "cuMemcpyDtoD": "LeaveKernelsToCopy"}


def is_by_hand(exempt: Rule) -> bool:
    """Whether lib/src/hooks has to define every function that a rule of the table names."""
    return exempt.reason.startswith(_BY_HAND)


def concerns(function: Function) -> bool:
    """Whether a function may put something into a stream, by its kind and its parameters."""
    return function.kind in ("copy", "stream") or bool(_streams(function))


def leaves(name: str, function: Function, table: Sequence[Rule]) -> tuple[str, ...]:
    """What the rendered hook of a function says before it forwards, as C++; nothing for none.

    Enforced kinds have none: their hooks account, and are written by hand. A function without a
    stream among its parameters is about all streams of the calling thread's context.
    """
    if function.kind in ENFORCED_KINDS or not concerns(function) or rules.naming(name, table):
        return ()
    streams = [
        f"PerThread({stream})" if function.stream else stream for stream in _streams(function)
    ]
    if not streams:
        return ("LeaveAllKernels()",)
    leave = next(
        (said for prefix, said in _LIKE_KERNELS.items() if name.startswith(prefix)), "LeaveKernels"
    )
    return (*(f"{leave}({stream})" for stream in streams), f"const CorePut put({streams[0]})")


# Implementation.


def _streams(function: Function) -> list[str]:
    names = param_names(function.params)
    return [
        name for param, name in zip(function.params, names, strict=True) if param.type == "CUstream"
    ]
