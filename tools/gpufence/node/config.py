"""What an agent gives out and under which names: one file, in TOML or JSON, and its presets.

Owns the keys of that file; must not know the kubelet.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gpufence.config import sizes
from gpufence.errors import ExitCode, ToolError, one_line

from . import pod_limits
from .gpus import Gpu

# What pods of other systems ask for. Their `gpumem` and the like count MiB, Alnair's GiB.
PRESETS: dict[str, dict[str, str]] = {
    "gpufence": {
        "gpu_resource": "gpufence.io/gpu",
        "memory_resource": "gpufence.io/memory-mib",
        "core_resource": "gpufence.io/cores",
    },
    "hami": {
        "gpu_resource": "nvidia.com/gpu",
        "memory_resource": "nvidia.com/gpumem",
        "core_resource": "nvidia.com/gpucores",
    },
    "vgpu-manager": {
        "gpu_resource": "nvidia.com/vgpu-number",
        "memory_resource": "nvidia.com/vgpu-memory",
        "core_resource": "nvidia.com/vgpu-cores",
    },
    "volcano": {
        "gpu_resource": "volcano.sh/vgpu-number",
        "memory_resource": "volcano.sh/vgpu-memory",
        "core_resource": "volcano.sh/vgpu-cores",
    },
    "alnair": {
        "gpu_resource": "",
        "memory_resource": "alnair/vgpu-memory",
        "memory_unit": "1GiB",
        "core_resource": "alnair/vgpu-compute",
    },
}
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_CHOICES = {
    "interface": ("device-plugin", "dra", "enforcer"),
    "policy": ("spread", "pack"),
    "expose": ("environment", "cdi"),
}
_FOLDERS = ("plugin_dir", "pod_resources", "plugins_dir", "registry_dir", "folder", "cdi_dir",
            "node_dir", "alnair_workspaces")  # fmt: skip
_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CAPACITY = re.compile(rf"(?:{_NODE.pattern}/)?[A-Za-z_][A-Za-z0-9_]{{0,31}}")
_LISTEN = re.compile(r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]{2,45}\])?:[1-9][0-9]{0,4}")
_LISTENS = "it is no ADDRESS:PORT, [IPV6]:PORT or :PORT"
_QOS = ("guaranteed", "burstable", "besteffort")
_MOST_SLOTS = 1000
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration, checked. Resources are "" where there is none of that kind.

    `memory_unit` and `default_memory` are bytes; 0 bytes mean the whole GPU, 0 cores no core limit.
    `gpus` is None where NVML is asked. `annotations` are names that pods may give, and `qos_...`
    what is set for a class of pods that do not give it, by name.
    """

    interface: str = "device-plugin"
    gpu_resource: str = ""
    memory_resource: str = ""
    core_resource: str = ""
    memory_unit: int = 1 << 20
    slots: int = 10
    policy: str = "spread"
    default_memory: int = 0
    default_cores: int = 0
    expose: str = "environment"
    plugin_dir: str = "/var/lib/kubelet/device-plugins"
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    plugins_dir: str = "/var/lib/kubelet/plugins"
    registry_dir: str = "/var/lib/kubelet/plugins_registry"
    api_server: str = ""
    node_name: str = ""
    enforced_driver: str = "gpu.nvidia.com"
    memory_capacity: str = "memory"
    core_capacity: str = "compute"
    folder: str = "/var/lib/gpufence/node"
    cdi_dir: str = "/var/run/cdi"
    node_dir: str = "/run/gpufence-node"
    alnair_dir: str = ""
    alnair_workspaces: str = "/var/lib/alnair/workspace"
    hypervisor_listen: str = ""
    settle_seconds: float = 60.0
    gpus: tuple[Gpu, ...] | None = None
    annotations: tuple[str, ...] = ()
    qos_guaranteed: Mapping[str, str] = field(default_factory=dict)
    qos_burstable: Mapping[str, str] = field(default_factory=dict)
    qos_besteffort: Mapping[str, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node's name: the configured one, else the variable NODE_NAME, else the machine's."""
        return self.node_name or os.environ.get("NODE_NAME", "") or socket.gethostname().lower()

    @property
    def steers(self) -> bool:
        """Whether pods are followed, because they or their QoS class may say something."""
        return bool(self.annotations or any(map(self.of_qos, _QOS)))

    def of_qos(self, name: str) -> Mapping[str, str]:
        """What is set for pods of a QoS class, by an annotation's name."""
        return getattr(self, f"qos_{name.lower()}") if name.lower() in _QOS else {}


def read(path: Path) -> Config:
    """The file's configuration.

    Raises:
        ToolError: exit 1, when it cannot be read; exit 2, when something in it is wrong.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ToolError(
            what=f"configuration '{path}' not read",
            why=(error.strerror or str(error)).lower(),
            fix="Name a file with --config",
        ) from None
    try:
        text = content[:_MOST_BYTES].decode()
        table = json.loads(text) if path.suffix == ".json" else _toml(text, path)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"configuration '{path}' refused", one_line(str(error))) from None
    if not isinstance(table, dict):
        raise _wrong(f"configuration '{path}' refused", "it is no table of keys")
    return of_table(table)


def _toml(text: str, path: Path) -> Any:  # noqa: ANN401 - a document
    try:
        tomllib = importlib.import_module("tomllib")
    except ModuleNotFoundError:
        raise ToolError(
            what=f"configuration '{path}' not read",
            why="this Python is older than 3.11 and reads no TOML",
            fix="Write it as JSON, in a file whose name ends in .json",
        ) from None
    return tomllib.loads(text)


def of_table(table: Mapping[str, Any]) -> Config:
    """A configuration from its keys.

    Raises:
        ToolError: exit 2 or 4.
    """
    given = dict(table)
    preset = given.pop("preset", None)
    if preset is not None and preset not in list(PRESETS):
        raise _wrong(f"preset {preset!r} refused", f"the presets are {', '.join(PRESETS)}")
    if preset is None and not any(given.get(f"{kind}_resource") for kind in ("gpu", "memory")):
        preset = "gpufence"
    given = {**PRESETS.get(preset or "", {}), **given}
    known = {each.name for each in fields(Config)}
    for key in given:
        if key not in known:
            raise _wrong(f"key '{key}' refused", f"the keys are preset, {', '.join(sorted(known))}")
    made = Config(**{key: _checked(key, value) for key, value in given.items()})
    if not (made.gpu_resource or made.memory_resource):
        raise _wrong("the configuration is refused", "it names no resource for GPUs or memory")
    if made.alnair_dir and made.interface != "device-plugin":
        raise _wrong("alnair_dir refused", "only the interface device-plugin serves Alnair's pods")
    if made.hypervisor_listen and made.interface != "device-plugin":
        why = "only the interface device-plugin serves vgpu.rs's pods"
        raise _wrong("hypervisor_listen refused", why)
    if made.steers and made.interface == "enforcer":
        why = "the interface enforcer has no limits that change while a pod runs"
        raise _wrong("annotations and qos_… refused", why)
    names = [made.gpu_resource, made.memory_resource, made.core_resource]
    if len({name for name in names if name}) < sum(map(bool, names)):
        raise _wrong("the configuration is refused", "two resources have the same name")
    return made


def _checked(key: str, value: Any) -> Any:  # noqa: ANN401 - of any key
    if key == "gpus":
        return _gpus(value)
    if key == "annotations":
        fine = isinstance(value, list) and all(each in pod_limits.NAMES for each in value)
        _require(key, value, fine, f"the annotations are {', '.join(pod_limits.NAMES)}")
        return tuple(value)
    if key.startswith("qos_"):
        return _said(key, value)
    if key.endswith("_resource"):
        _require(key, value, isinstance(value, str) and (not value or _is_resource(value)))
    elif key in ("memory_unit", "default_memory"):
        value = _bytes(key, value)
        _require(key, value, key != "memory_unit" or value >= 1 << 20)
    elif key in _CHOICES:
        _require(key, value, value in _CHOICES[key])
    elif key in _FOLDERS:
        _require(key, value, isinstance(value, str) and value.startswith("/"))
    elif key == "alnair_dir":  # containers see all of it
        own = isinstance(value, str) and (
            not value or (value.startswith("/") and value.rstrip("/").count("/") > 1)
        )
        _require(key, value, own, "it is no folder below another one")
    elif key == "hypervisor_listen":
        _require(key, value, value == "" or bool(_LISTEN.fullmatch(str(value))), _LISTENS)
    elif key == "api_server":
        _require(key, value, isinstance(value, str))
    elif key in ("node_name", "enforced_driver"):
        _require(key, value, isinstance(value, str) and bool(_NODE.fullmatch(value)))
    elif key.endswith("_capacity"):
        _require(key, value, isinstance(value, str) and bool(_CAPACITY.fullmatch(value)))
    elif key == "settle_seconds":
        _require(key, value, isinstance(value, int | float) and 0 <= value <= 3600)
    else:
        most = _MOST_SLOTS if key == "slots" else 100
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(key, value, whole and (key != "slots" or value > 0) and 0 <= value <= most)
    return value


def _is_resource(name: str) -> bool:
    return bool(_RESOURCE.fullmatch(name)) and len(name) < 256


def _said(key: str, value: object) -> dict[str, str]:
    """`["priority=low", "weight=2"]` by name, read once to see that it can be."""
    lines = value if isinstance(value, list) else []
    pairs = [str(each).partition("=") for each in lines]
    said = {name.strip(): text.strip() for name, _, text in pairs}
    fine = isinstance(value, list) and all(name in pod_limits.NAMES for name in said)
    _require(key, value, fine, f"it is a list of NAME=TEXT, NAME {', '.join(pod_limits.NAMES)}")
    pod_limits.amounts(said)
    return said


def _require(
    key: str, value: object, fine: bool, why: str = "this key cannot have that value"
) -> None:
    if not fine:
        raise _wrong(f"{key} = {value!r} refused", why)


def _bytes(key: str, value: object) -> int:
    try:
        size = sizes.parse_size(str(value))
        if size is None or not size.percent_of_device:
            return size.amount if size else 0
        clause, fix = "is a part of a GPU, whose size differs", "Write it as 4GiB"
    except sizes.TextError as error:
        clause, fix = error.clause, error.fix
    raise ToolError(
        what=f"{key} '{sizes.quote(str(value))}' refused",
        why=f"it {clause}",
        fix=fix,
        status=ExitCode.INVALID_LIMIT,
    )


def _gpus(value: object) -> tuple[Gpu, ...]:
    found = []
    for each in value if isinstance(value, list) else []:
        if not isinstance(each, dict) or set(each) != {"uuid", "memory"}:
            raise _wrong(f"GPU {each!r} refused", "a GPU has the keys uuid and memory, no others")
        try:
            sizes.parse_uuid(str(each["uuid"]))
        except sizes.TextError:
            raise _wrong(f"GPU {each['uuid']!r} refused", "that is no UUID of a GPU") from None
        found.append(Gpu(str(each["uuid"]), _bytes("memory", each["memory"])))
    if not found or len({gpu.uuid for gpu in found}) < len(found):
        raise _wrong("gpus refused", "it must be a list of GPUs, each of them once")
    return tuple(found)


def _wrong(what: str, why: str) -> ToolError:
    fix = "See docs/node-agent.md for the keys"
    return ToolError(what=what, why=why, fix=fix, status=ExitCode.USAGE)
