"""What a pod's annotations, or its QoS class, say of its containers' limits while they run. Pure.

`gpufence.io/memory: 2GiB` is for every container of the pod, `train.gpufence.io/memory` for its
container `train`. Owns the names and what they mean; must not know who reads pods, nor how limits
are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from gpufence.config import sizes, terms
from gpufence.errors import ExitCode, ToolError
from gpufence.state.limits_bytes import Amounts

DOMAIN = "gpufence.io"
_SWITCH = {"true": True, "false": False}


def _bytes(text: str) -> int | None:
    size = sizes.parse_size(text)
    if size is not None and size.percent_of_device:
        raise sizes.TextError("is a part of a GPU", "Write it as 4GiB")
    return size.amount if size else None


def _switch(text: str) -> bool:
    if text not in _SWITCH:
        raise sizes.TextError("is neither true nor false", "Write true or false")
    return _SWITCH[text]


_PARSERS: dict[str, Callable[[str], Any]] = {
    "memory": _bytes,
    "cores": sizes.parse_percent,
    "soft-cores": sizes.parse_percent,
    "priority": terms.parse_priority,
    "weight": sizes.parse_weight,
    "core-burst": sizes.parse_burst,
    "core-floor": sizes.parse_floor,
    "frozen": _switch,
}
NAMES = tuple(_PARSERS)
# Where terms stand, by their names here.
_TERMS = {"priority": "priority", "weight": "weight", "core-burst": "burst_ns",
          "core-floor": "floor"}  # fmt: skip


def texts(
    annotations: Mapping[str, str],
    container: str,
    allowed: Collection[str],
    usual: Mapping[str, str],
) -> dict[str, str]:
    """What is said for one container, by name and as it was written.

    Args:
        annotations: of the pod.
        container: its name in the pod; "" where only what is for every container counts.
        allowed: names that pods may give; others are passed by.
        usual: of the pod's QoS class, where the pod says nothing.
    """
    said = dict(usual)
    for prefix in (DOMAIN, f"{container}.{DOMAIN}" if container else DOMAIN):
        for name in allowed:
            text = annotations.get(f"{prefix}/{name}")
            if text is not None:
                said[name] = text
    return said


def amounts(said: Mapping[str, str]) -> Amounts:
    """What texts() found, read.

    Raises:
        ToolError: exit 4, for a text that is none.
    """
    values = {name: _parsed(name, text) for name, text in said.items()}
    return Amounts(
        memory=values.get("memory"),
        cores=values.get("cores"),
        soft_cores=values.get("soft-cores"),
        terms=terms.Terms(**{_TERMS[name]: values[name] for name in _TERMS if name in values}),
        frozen=values.get("frozen", False),
    )


def within(wanted: Amounts, memory_bytes: int, cores: int) -> Amounts:
    """The same, but no more than a container was given: others were promised the rest.

    Args:
        wanted: what is said.
        memory_bytes: what it has of each GPU.
        cores: percent of its GPUs' time; 0 is no core limit.
    """
    most = cores * 1000
    if wanted.memory is not None:
        wanted = replace(wanted, memory=min(wanted.memory or memory_bytes, memory_bytes))
    if wanted.cores is not None and most:
        wanted = replace(wanted, cores=min(wanted.cores or most, most))
    return wanted


def edited(before: Amounts, names: Collection[str], wanted: Amounts) -> Amounts:
    """What is set afterwards: `wanted`, and of what was set before all but these names."""
    kept = {term: None for name, term in _TERMS.items() if name in names}
    left = replace(before, terms=replace(before.terms, **kept))
    if "memory" in names:
        left = replace(left, memory=None, memory_is_part=False)
    if "cores" in names:
        left = replace(left, cores=None)
    if "soft-cores" in names:
        left = replace(left, soft_cores=None)
    if "frozen" in names:
        left = replace(left, frozen=False)
    return wanted.over(left)


def _parsed(name: str, text: str) -> Any:  # noqa: ANN401 - of any name
    try:
        return _PARSERS[name](text)
    except sizes.TextError as error:
        raise ToolError(
            what=f"{DOMAIN}/{name} '{sizes.quote(text)}' refused",
            why=f"it {error.clause}",
            fix=error.fix,
            status=ExitCode.INVALID_LIMIT,
        ) from None
