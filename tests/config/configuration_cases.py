"""The one table of limits (limits.vectors.json) as typed cases, and the library's answer to each.

Asked as the tools ask: through libgpufence-limits.so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpufence.config import limits
from gpufence.config.sources import ConfigError, System

GIB = 1 << 30
CARD_BYTES = 80 * GIB
UUIDS = (bytes([0x11] * 16), bytes([0x22] * 16))
TABLE = json.loads(Path(__file__).with_name("limits.vectors.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Machine:
    """Sources and GPUs of one case."""

    root: Path
    environment: tuple[str, ...]
    devices: tuple[limits.Device, ...]

    @property
    def system(self) -> System:
        """What is read."""
        return System(str(self.root), self.environment)


def two_gpus(nvml: bool = True) -> tuple[limits.Device, ...]:
    """Two GPUs of 80 GiB; CUDA and NVML count them alike."""
    return tuple(
        limits.Device(uuid, i, i if nvml else None, CARD_BYTES) for i, uuid in enumerate(UUIDS)
    )


def machine(root: Path, case: dict[str, Any]) -> Machine:
    """Write the case's files and return the rest."""
    for name, text in case.get("files", {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    environment = tuple(f"{name}={text}" for name, text in case["env"].items())
    devices = two_gpus(case.get("nvml", True))
    if case.get("reordered"):  # as under CUDA_VISIBLE_DEVICES=1,0
        devices = tuple(replace(each, ordinal=1 - each.ordinal) for each in reversed(devices))
    return Machine(root, environment, devices)


def answer(asked: Machine) -> dict[str, Any]:
    """What the library says of a machine; "why" where it refuses."""
    devices = "".join(device.text() for device in asked.devices)
    try:
        return dict(asked.system.claims(devices))
    except ConfigError as error:
        return {"why": str(error)}


def check(case: dict[str, Any], got: dict[str, Any]) -> None:
    """Compare an answer with what the table promises."""
    if "error" in case:
        assert case["error"] in (got.get("why"), got.get("resolution", {}).get("why"))
        return
    nothing = {"memory_bytes": None, "core_millipercent": 0, "core_soft_millipercent": 0,
               "oversubscribe": 0}  # fmt: skip
    resolution = got.get("resolution", {"limits": [], "warnings": []})
    # Without a claim for them, GPUs are not asked about.
    limited = resolution["limits"] if got["any_limit"] else [nothing] * 2
    warnings = resolution["warnings"] if got["any_limit"] else []
    assert [each["memory_bytes"] for each in limited] == case["memory"]
    assert shares(limited) == case.get("cores", [[0, 0]] * 2)
    assert [each["oversubscribe"] for each in limited] == case.get("oversubscribe", [0, 0])
    assert warnings == case["warnings"]
    if "notes" in case:
        assert got["notes"] == case["notes"]
    if "core_sources" in case:
        told = [[each["core_source"], each["core_soft_source"]] for each in limited]
        assert told == case["core_sources"]
    assert kept(got["terms"]) == case.get("terms", [0] * 4)
    for key in (
        "container",
        "device_name",
        "hypervisor",
        "log_file",
        "log_is_daily",
        "mode_source",
        "node_folder",
    ):
        assert got[key] == case.get(key, got[key])
    assert got["log_level"] == case.get("log", got["log_level"])


def shares(limited: list[dict[str, Any]]) -> list[list[int]]:
    """Hard and soft share of each GPU."""
    return [[each["core_millipercent"], each["core_soft_millipercent"]] for each in limited]


def kept(terms: dict[str, list[Any]]) -> list[int]:
    """As the library keeps them: 0 is not set, and an explicit 0 the least amount."""
    amounts = [terms.get(name, [None])[0] for name in ("weight", "core_burst", "core_floor")]
    priority = terms.get("priority", [0])[0]
    return [priority, *(0 if each is None else max(each, 1) for each in amounts)]
