"""The one table of limits (limits.vectors.json) as typed cases, and Python's answer to each.

Imported by the tests of the Python side here and of the library's side in tests/preload.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gpufence.config import dialects, limits, sizes, terms
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
        """For the Python side."""
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


def grammar(name: str, text: str) -> dict[str, Any]:
    """Python's answer to what config_vectors answers to ["grammar", name, text]."""
    value: Any
    try:
        if name == "size":
            size = sizes.parse_size(text)
            value = [size.amount, size.percent_of_device]
        elif name == "uuid":
            value = sizes.parse_uuid(text).hex()
        else:
            value = {
                "percent": sizes.parse_percent,
                "ratio": sizes.parse_ratio,
                "megabytes": sizes.parse_megabytes,
                "switch": sizes.parse_switch,
                "priority": terms.parse_priority,
                "weight": sizes.parse_weight,
                "burst": sizes.parse_burst,
                "floor": sizes.parse_floor,
            }[name](text)
    except sizes.TextError as error:
        return {"why": sizes.describe("X", text, error.fault)}
    return {"value": value}


def answer(asked: Machine) -> dict[str, Any]:
    """Python's answer to what config_vectors answers to ["claims", ...], in its JSON."""
    try:
        claims = dialects.read_claims(asked.system)
    except ConfigError as error:
        return {"read": "invalid", "why": str(error)}
    result: dict[str, Any] = {
        "read": "limits" if claims.any_limit else "nothing",
        "log": claims.log_level,
        "claims": [_claim(claim) for claim in claims.claims],
        "notes": claims.notes,
        "scope": "process" if claims.process_scope else "container",
        "container": claims.container,
        "state_folder": claims.state_folder,
        "node_folder": claims.node_folder,
        "device_name": claims.device_name,
        "hypervisor": claims.hypervisor,
        "log_file": claims.log_file,
        "log_is_daily": claims.log_is_daily,
        "terms": _terms(claims.terms),
    }
    if not claims.any_limit or not asked.devices:
        return result
    try:
        resolved = limits.resolve(claims, asked.devices)
    except ConfigError as error:
        return {**result, "resolved": "invalid", "limits": [], "why": str(error)}
    return {
        **result,
        "resolved": "limits" if resolved.limited else "nothing",
        "limits": [
            [
                2**64 - 1 if each.memory_bytes is None else each.memory_bytes,
                each.memory_source,
                each.core_millipercent,
                each.core_soft_millipercent,
                each.oversubscribe,
                each.core_source,
                each.core_soft_source,
                each.oversubscribe_source,
            ]
            for each in resolved.limits
        ],
        "warnings": resolved.warnings,
        "why": "",
    }


def _terms(of: terms.Terms) -> list[int]:
    """As the library keeps them: 0 is not set, and an explicit 0 the least amount."""
    kept = [0 if each is None else max(each, 1) for each in (of.weight, of.burst_ns, of.floor)]
    return [of.priority or 0, *kept]


def _claim(claim: limits.Claim) -> list[Any]:
    values = [getattr(claim, field.name) for field in fields(claim)]
    return [value.hex() if isinstance(value, bytes) else value for value in values]


def check(case: dict[str, Any], got: dict[str, Any]) -> None:
    """Compare an answer, whoever gave it, with what the table promises."""
    if "error" in case:
        assert got["why"] == case["error"]
        assert "invalid" in (got["read"], got.get("resolved"))
        return
    limited = got.get("limits", [[2**64 - 1, "", 0, 0, 0, "", "", ""]] * 2)
    memory = [None if each[0] == 2**64 - 1 else each[0] for each in limited]
    assert got.get("why", "") == ""
    assert memory == case["memory"]
    assert [each[2:4] for each in limited] == case.get("cores", [[0, 0]] * 2)
    assert [each[4] for each in limited] == case.get("oversubscribe", [0, 0])
    assert got.get("warnings", []) == case["warnings"]
    if "notes" in case:
        assert got["notes"] == case["notes"]
    if "core_sources" in case:
        assert [each[5:7] for each in limited] == case["core_sources"]
    assert got.get("terms", [0] * 4) == case.get("terms", [0] * 4)
    keys = ("container", "device_name", "hypervisor", "log", "log_file", "log_is_daily")
    for key in (*keys, "node_folder"):
        assert got[key] == case.get(key, got[key])
