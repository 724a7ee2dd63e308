"""What a node's GPUs are to the scheduler (a ResourceSlice), and what it gave to a claim. Pure.

Owns the shape of the objects of resource.k8s.io/v1 that concern us, and quantities; must not know
where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpufence.errors import ToolError

from .book import WHOLE
from .gpus import Gpu

DRIVER = "gpufence.io"
_MIB = 1 << 20
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([KMGTPE]i|[mkMGTPE])|[eE]([0-9]{1,2}))?")
_FACTORS = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    "m": Decimal("0.001"),
}
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Share:
    """One result of a claim: a request's part of one GPU."""

    request: str
    pool: str
    device: str
    memory_bytes: int
    cores: int


def device_of(gpu: Gpu) -> str:
    """What a GPU is called in a slice."""
    return gpu.uuid.lower()


def slice_of(node: str, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """The ResourceSlice of a node: one device for each GPU, which several claims may share.

    A claim that names no amount of memory or cores has all of it, so that it is alone there.
    """
    return of_devices(node, DRIVER, [_device(gpu) for gpu in gpus])


def of_devices(node: str, driver: str, devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The only ResourceSlice that a driver has of a node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def _device(gpu: Gpu) -> dict[str, Any]:
    memory = _text_of(gpu.memory_bytes // _MIB)
    return {
        "name": device_of(gpu),
        "attributes": {"uuid": {"string": gpu.uuid}},
        "allowMultipleAllocations": True,
        "capacity": {
            "memory": {
                "value": memory,
                "requestPolicy": {
                    "default": memory,
                    "validRange": {"min": "1Mi", "max": memory, "step": "1Mi"},
                },
            },
            "cores": {
                "value": str(WHOLE),
                "requestPolicy": {
                    "default": str(WHOLE),
                    "validRange": {"min": "1", "max": str(WHOLE), "step": "1"},
                },
            },
        },
    }


def _text_of(mib: int) -> str:
    """A quantity as an API server writes it: in the largest unit of which it is a whole number.

    What it writes otherwise than it was told looks changed, and would be published again for ever.
    """
    units = iter("MGTPE")
    unit = next(units)
    while mib and mib % 1024 == 0 and (larger := next(units, "")):
        mib, unit = mib // 1024, larger
    return f"{mib}{unit}i"


def results_of(claim: Mapping[str, Any], uid: str) -> tuple[str, list[Mapping[str, Any]]]:
    """A claim's namespace/name, and what the scheduler gave it, of every driver.

    Args:
        claim: a ResourceClaim.
        uid: that it must have, since a name may be another claim's by now.

    Raises:
        ToolError: exit 1, it is another one, or not allocated.
    """
    name = ""
    try:
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        if claim["metadata"]["uid"] != uid:
            raise refused(name, f"it is not the claim {uid} any more")
        results = claim["status"]["allocation"]["devices"]["results"]
        return name, [each for each in results if each["driver"]]
    except (KeyError, TypeError, AttributeError):
        raise refused(name, "it is not allocated") from None


def shares_of(claim: Mapping[str, Any], uid: str) -> tuple[str, tuple[Share, ...]]:
    """A claim's namespace/name, and what the scheduler gave it of our own driver's devices.

    Raises:
        ToolError: exit 1, it is another one, or not allocated, or says what cannot be read.
    """
    name, results = results_of(claim, uid)
    try:
        found = tuple(_share(each) for each in results if each["driver"] == DRIVER)
    except (KeyError, TypeError, AttributeError):
        raise refused(name, "it is not allocated") from None
    except ValueError as error:
        raise refused(name, str(error)) from None
    if not found:
        raise refused(name, f"it has no device of {DRIVER}")
    return name, found


def _share(result: Mapping[str, Any]) -> Share:
    consumed = result["consumedCapacity"]
    return Share(
        request=str(result["request"]),
        pool=str(result["pool"]),
        device=str(result["device"]),
        memory_bytes=quantity(str(consumed["memory"])),
        cores=quantity(str(consumed["cores"])),
    )


def quantity(text: str) -> int:
    """A quantity of Kubernetes as a whole number; fractions round down.

    Raises:
        ValueError: it is none, or negative.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{text[:_LONGEST]!r} is no amount")
    number, suffix, exponent = match.groups()
    factor = Decimal(10) ** int(exponent) if exponent else _FACTORS.get(suffix, Decimal(1))
    return int(Decimal(number) * factor)


def amounts_of(shares: Iterable[Share], name: str) -> tuple[int, int]:
    """Bytes and percent that the claim has of each of its GPUs.

    Raises:
        ToolError: exit 1, they differ: there is one limit for all of a container's GPUs; or they
            are nothing.
    """
    amounts = {(share.memory_bytes, share.cores) for share in shares}
    if len(amounts) > 1:
        raise refused(name, "it has different amounts of its GPUs")
    memory, cores = amounts.pop()
    if not memory or not cores:
        raise refused(name, "it has nothing of a GPU")
    return memory, cores


def refused(name: str, why: str) -> ToolError:
    """Exit 1: a claim, by namespace/name, that is not prepared."""
    return ToolError(
        what=f"claim {name} not prepared",
        why=why,
        fix="See `kubectl describe resourceclaim`, or make the claim anew",
    )
