"""Claims whose GPUs another driver gave out, NVIDIA's: their amounts become limits here.

The claim has a request for this driver's one device beside those for GPUs, which is how the kubelet
comes to ask. Owns what an allocation means; nothing is given out here. Must not know how an object
is fetched, nor how a limit reaches a container.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpufence.config import sizes

from . import slices
from .book import WHOLE, Grant, Part
from .boxes import Boxes
from .claims import Answer
from .config import Config

DRIVER = "enforcer.gpufence.io"
CHECKPOINT = "enforced.json"
_DEVICE = "limits"
_MOST_BYTES = (1 << 63) - 1  # what the library reads

Object = Mapping[str, Any]


def slice_of(node: str) -> dict[str, Any]:
    """The ResourceSlice of a node: one device, which any number of claims may have."""
    device = {"name": _DEVICE, "allowMultipleAllocations": True}
    return slices.of_devices(node, DRIVER, [device])


@dataclass(frozen=True, slots=True)
class Enforcer:
    """Rules for the claims of one other driver; `fetch` has its slices of a node."""

    config: Config
    boxes: Boxes
    fetch: Callable[[str, str], Sequence[Object]]
    driver: str = DRIVER
    checkpoint: str = CHECKPOINT

    def misfit(self, held: Collection[Grant]) -> str:
        """Empty: whoever gave the GPUs out answers for what there is of them."""
        return ""

    def grant(
        self, key: str, claim: dict[str, Any], uid: str, others: Collection[Grant]
    ) -> tuple[Grant, tuple[Answer, ...]]:
        """The limits that follow from what the other driver's devices were given out with.

        Raises:
            ToolError: exit 1, there is a GPU whose limit cannot be told.
        """
        owner, results = slices.results_of(claim, uid)
        other = self.config.enforced_driver
        try:
            ours = [each for each in results if each["driver"] == DRIVER]
            gpus = [each for each in results if each["driver"] == other]
            if not ours or not gpus:
                raise ValueError(f"it has no device of {other if ours else DRIVER}")
            published = self.fetch(other, self.config.node)
            parts = _together(_part(each, published, self.config) for each in gpus)
        except (KeyError, TypeError, AttributeError):
            raise slices.refused(owner, "its allocation cannot be read") from None
        except ValueError as error:
            raise slices.refused(owner, str(error)) from None
        made = Grant(key, owner, {}, tuple(part.gpu for part in parts), 0, 0, parts)
        return made, self._answers(key, ours)

    def _answers(self, key: str, ours: Sequence[Object]) -> tuple[Answer, ...]:
        # For no request in particular: a container may name the GPU's request alone.
        device = (self.boxes.device(key),)
        return tuple(
            Answer((), str(each["pool"]), str(each["device"]), () if number else device)
            for number, each in enumerate(ours)
        )


def _part(result: Object, published: Iterable[Object], config: Config) -> Part:
    """What a claim was given of one device.

    Raises:
        ValueError: that cannot be told, or the GPU's UUID cannot.
    """
    name = str(result["device"])
    device = _device(name, str(result["pool"]), published, config.enforced_driver)
    attributes = device.get("attributes") or {}

    def said(attribute: str) -> str:
        found = _of(attributes, attribute, config.enforced_driver) or {}
        return str(found.get("string", ""))

    if said("type") == "vfio":
        raise ValueError(f"'{name}' is for a virtual machine, where no limit of ours holds")
    uuid = said("uuid")
    try:
        sizes.parse_uuid(uuid)
    except sizes.TextError:
        why = f"its device '{name}' has no UUID in {config.enforced_driver}'s slices"
        raise ValueError(why) from None
    consumed = result.get("consumedCapacity") or {}
    memory = _amount(_of(consumed, config.memory_capacity, config.enforced_driver))
    cores = _amount(_of(consumed, config.core_capacity, config.enforced_driver))
    if memory > _MOST_BYTES:
        raise ValueError(f"it has {memory} bytes of '{name}', which no GPU has")
    if cores:
        cores = _percent(cores, device, name, config)
    return Part(uuid, memory, cores)


def _device(name: str, pool: str, published: Iterable[Object], driver: str) -> Object:
    """A device of the newest generation of its pool, as its driver published it."""
    there = [
        each["spec"]
        for each in published
        if each["spec"]["driver"] == driver and each["spec"]["pool"]["name"] == pool
    ]
    newest = max((int(spec["pool"]["generation"]) for spec in there), default=0)
    for spec in there:
        if int(spec["pool"]["generation"]) == newest:
            for each in spec.get("devices") or []:
                if each["name"] == name:
                    found: Object = each
                    return found
    raise ValueError(f"its device '{name}' is in no slice of {driver} of this node now")


def _percent(consumed: int, device: Object, name: str, config: Config) -> int:
    """Of a device's compute; a part of one percent is one, since 0 would be no limit."""
    known = _of(device.get("capacity") or {}, config.core_capacity, config.enforced_driver) or {}
    whole = _amount(known.get("value"))
    if not whole or consumed > whole:
        text = f"it has {consumed} {config.core_capacity} of '{name}', which has {whole}"
        raise ValueError(text)
    return max(1, consumed * WHOLE // whole)


def _of(named: Object, name: str, driver: str) -> Any:  # noqa: ANN401 - JSON
    """By the name alone or with its driver's domain, which mean the same."""
    return named.get(name, named.get(f"{driver}/{name}"))


def _amount(text: object) -> int:
    """A quantity; 0 where there is none.

    Raises:
        ValueError: it cannot be read, or is less than one.
    """
    if text is None:
        return 0
    found = slices.quantity(str(text))
    if not found and re.match(r"[0.]*[1-9]", str(text)):
        raise ValueError(f"'{text}' is less than one")  # rounded down it would be no limit
    return found


def _together(parts: Iterable[Part]) -> tuple[Part, ...]:
    """One part for each GPU: a claim may have several shares of one."""
    found: dict[str, Part] = {}
    for part in parts:
        before = found.get(part.gpu)
        if before is not None:
            memory = _sum(before.memory_bytes, part.memory_bytes)
            cores = min(_sum(before.cores, part.cores), WHOLE)
            part = Part(part.gpu, memory, cores)
        found[part.gpu] = part
    return tuple(found.values())


def _sum(first: int, second: int) -> int:
    """Of two amounts, either of which may be 0 for no limit."""
    return first + second if first and second else 0
