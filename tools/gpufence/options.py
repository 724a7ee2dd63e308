"""The one table of every variable that limits come from, whoever named it first. Data only.

lib/src/config/options.cpp says the same to the library and docs/configuration.md to people; a test
compares all three.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Dialect(enum.IntEnum):
    """Whose variable it is; a limit that two of them name is the lower one."""

    GPUFENCE = 0
    HAMI = 1
    VGPU_MANAGER = 2
    VCUDA = 3
    VGPU_RS = 4
    ALNAIR = 5

    @property
    def title(self) -> str:
        """Its name among people."""
        return ("gpufence", "HAMi-core", "vgpu-manager", "vcuda-hook", "vgpu.rs", "Alnair")[self]


class Setting(enum.IntEnum):
    """What a text means; the values are the library's."""

    MEMORY = 0
    MEMORY_MAP = 1
    MEMORY_MEGABYTES = 2
    CORES = 3
    CORES_MAP = 4
    SOFT_CORES = 5
    RATIO = 6
    SPILL = 7
    OVERSUBSCRIBE = 8
    CORE_POLICY = 9
    HOOKS = 10
    SCOPE = 11
    STATE_FOLDER = 12
    CONTAINER = 13
    CONFIG_FILE = 14
    POD_UID = 15
    CONTAINER_NAME = 16
    DEVICE_NAME = 17
    HOST_DEVICES = 18
    HOST_DEVICE = 19
    OLD_HOST_DEVICES = 20
    VISIBLE_DEVICES = 21
    ID = 22
    WORKSPACE = 23
    LOG_LEVEL = 24
    LOG_SWITCH = 25
    ELSEWHERE = 26
    IGNORED = 27


class Keys(enum.IntEnum):
    """What may follow the name behind a '_'."""

    NONE = 0
    INDEX = 1
    INDEX_OR_UUID = 2


@dataclass(frozen=True, slots=True)
class Option:
    """One variable."""

    name: str
    dialect: Dialect
    setting: Setting
    keys: Keys
    text: str  # what may be written
    meaning: str


_OWN, _HAMI, _MANAGER, _VCUDA, _RS, _ALNAIR = Dialect
_NONE, _INDEX, _UUID = Keys
_ANY = "anything"


def _ignored(dialect: Dialect, meaning: str, *names: str) -> tuple[Option, ...]:
    return tuple(Option(name, dialect, Setting.IGNORED, _NONE, _ANY, meaning) for name in names)


OPTIONS: tuple[Option, ...] = (
    Option(
        "GPUFENCE_MEMORY_LIMIT",
        _OWN,
        Setting.MEMORY,
        _UUID,
        "size",
        "bytes of each GPU, or of the one named",
    ),
    Option(
        "GPUFENCE_CORE_LIMIT",
        _OWN,
        Setting.CORES,
        _UUID,
        "percent",
        "share of GPU time; read and checked, not enforced by this build",
    ),
    Option(
        "GPUFENCE_OVERSUBSCRIBE",
        _OWN,
        Setting.OVERSUBSCRIBE,
        _NONE,
        "off, on or a ratio of 1 or more",
        "more memory than the GPU has; read and checked, not enforced by this build",
    ),
    Option(
        "GPUFENCE_SCOPE",
        _OWN,
        Setting.SCOPE,
        _NONE,
        "container (default) or process",
        "whether a limit holds for the container's processes together or for each alone",
    ),
    Option(
        "GPUFENCE_STATE_DIR",
        _OWN,
        Setting.STATE_FOLDER,
        _NONE,
        "absolute path",
        "where the container's processes keep their common ledger, tried first",
    ),
    Option(
        "GPUFENCE_CONTAINER",
        _OWN,
        Setting.CONTAINER,
        _NONE,
        "name",
        "processes with the same name share one limit; set by `gpufence run`",
    ),
    Option(
        "GPUFENCE_CONFIG",
        _OWN,
        Setting.CONFIG_FILE,
        _NONE,
        "path",
        "the config file instead of /etc/gpufence/gpufence.conf; it must exist then",
    ),
    Option(
        "GPUFENCE_LOG_LEVEL",
        _OWN,
        Setting.LOG_LEVEL,
        _NONE,
        "off, error, warn (default), info, debug or trace",
        "how much the library says on stderr",
    ),
    Option(
        "GPUFENCE_LOG_FILE",
        _OWN,
        Setting.ELSEWHERE,
        _NONE,
        "path",
        "where it says it instead, appended; from the environment only",
    ),
    Option(
        "CUDA_DEVICE_MEMORY_LIMIT",
        _HAMI,
        Setting.MEMORY,
        _INDEX,
        "size",
        "bytes; `_<i>` counts CUDA ordinals, and 0 there means the general value",
    ),
    Option(
        "CUDA_DEVICE_SM_LIMIT",
        _HAMI,
        Setting.CORES,
        _INDEX,
        "percent",
        "share of GPU time; read and checked, not enforced by this build",
    ),
    Option(
        "GPU_CORE_UTILIZATION_POLICY",
        _HAMI,
        Setting.CORE_POLICY,
        _NONE,
        "default, force or disable",
        "disable takes CUDA_DEVICE_SM_LIMIT away",
    ),
    Option(
        "CUDA_OVERSUBSCRIBE",
        _HAMI,
        Setting.SPILL,
        _NONE,
        "switch",
        "spill to managed memory; read and checked, not enforced by this build",
    ),
    Option(
        "LIBCUDA_LOG_LEVEL",
        _HAMI,
        Setting.LOG_LEVEL,
        _NONE,
        "number",
        "0 error, 1 and 2 warn, 3 info, 4 debug, 5 and above trace",
    ),
    *_ignored(_HAMI, "priorities are not used", "CUDA_TASK_PRIORITY"),
    *_ignored(
        _HAMI,
        "internal to HAMi-core",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE",
        "ACTIVE_OOM_KILLER",
        "RECORD_KERNEL_INTERVAL",
        "CUDA_REDIRECT",
    ),
    *_ignored(_HAMI, "for HAMi's plugin, which then does not preload", "CUDA_DISABLE_CONTROL"),
    Option(
        "CUDA_MEM_LIMIT",
        _MANAGER,
        Setting.MEMORY,
        _INDEX,
        "size above 0",
        "bytes; `_<i>` counts the host's GPUs, and an empty one takes the limit away there",
    ),
    Option(
        "CUDA_MEM_RATIO",
        _MANAGER,
        Setting.RATIO,
        _INDEX,
        "number",
        "above 1 oversubscribes; read and checked, not enforced by this build",
    ),
    Option(
        "CUDA_MEM_OVERSOLD",
        _MANAGER,
        Setting.SPILL,
        _INDEX,
        "switch",
        "spill to managed memory; read and checked, not enforced by this build",
    ),
    Option(
        "CUDA_CORE_LIMIT",
        _MANAGER,
        Setting.CORES,
        _INDEX,
        "percent",
        "share of GPU time; read and checked, not enforced by this build",
    ),
    Option(
        "CUDA_CORE_SOFT_LIMIT",
        _MANAGER,
        Setting.SOFT_CORES,
        _INDEX,
        "percent",
        "share while the GPU is otherwise idle; nothing without CUDA_CORE_LIMIT",
    ),
    Option(
        "MANAGER_VISIBLE_DEVICES",
        _MANAGER,
        Setting.HOST_DEVICES,
        _NONE,
        "UUIDs with commas",
        "the host's GPUs in order; the zero UUID is a hole",
    ),
    Option(
        "MANAGER_VISIBLE_DEVICE",
        _MANAGER,
        Setting.HOST_DEVICE,
        _INDEX,
        "UUID",
        "one of them, by its index; beats the list",
    ),
    Option(
        "GPU_DEVICES_UUID",
        _MANAGER,
        Setting.OLD_HOST_DEVICES,
        _NONE,
        "UUIDs with commas",
        "the same under its older name, where the newer one is not set",
    ),
    Option(
        "NVIDIA_VISIBLE_DEVICES",
        _MANAGER,
        Setting.VISIBLE_DEVICES,
        _NONE,
        _ANY,
        "where it lists UUIDs and nothing above is set, the same; else `_<i>` counts as NVML does",
    ),
    Option(
        "VGPU_POD_UID",
        _MANAGER,
        Setting.POD_UID,
        _NONE,
        "text",
        "with VGPU_CONTAINER_NAME the container's identity",
    ),
    Option(
        "VGPU_CONTAINER_NAME",
        _MANAGER,
        Setting.CONTAINER_NAME,
        _NONE,
        "text",
        "with VGPU_POD_UID the container's identity",
    ),
    Option(
        "LOGGER_LEVEL",
        _MANAGER,
        Setting.LOG_LEVEL,
        _NONE,
        "number",
        "0 and 1 error, 2 and negative warn, 3 info, 4 debug, 5 and above trace",
    ),
    *_ignored(_MANAGER, "advice for managed memory", "CUDA_MEM_UVA_ADVISE"),
    *_ignored(_MANAGER, "labels", "VGPU_POD_NAME", "VGPU_POD_NAMESPACE"),
    *_ignored(
        _MANAGER,
        "how processes are recognised: not needed here",
        "MANAGER_COMPATIBILITY_MODE",
        "ENV_COMPATIBILITY_MODE",
    ),
    *_ignored(_MANAGER, "labels", "MANAGER_CLIENT_REGISTER_UUID", "MANAGER_VGPU_CLAIM_UID"),
    *_ignored(
        _MANAGER,
        "tunes its own controllers",
        "CUDA_SM_CONTROLLER",
        "CUDA_SM_DELTA_RAMP_FLOOR_DIVISOR",
        "CUDA_SM_AIMD_MD_DIVISOR",
        "CUDA_SM_AIMD_EFF_RATIO",
        "CUDA_SM_AIMD_AI_BASE_DIV",
        "CUDA_SM_AIMD_DEADBAND_RATIO",
        "CUDA_SM_AIMD_MD_COOLDOWN_CYCLES",
        "CUDA_SM_AUTO_DEBOUNCE_CYCLES",
        "CUDA_SM_AUTO_EXTERNAL_UTIL_THRESHOLD",
        "CUDA_SM_USAGE_THRESHOLD",
    ),
    *_ignored(
        _MANAGER,
        "always so here",
        "CUDA_SM_SHARED_BUCKET",
        "VMEMORY_NODE_ENABLED",
        "EXTERNAL_SM_WATCHER_ENABLED",
    ),
    *_ignored(_MANAGER, "for its plugin, which then does not preload", "DISABLE_VGPU_CONTROL"),
    Option("VCUDA_MEMORY_LIMIT", _VCUDA, Setting.MEMORY, _NONE, "size", "bytes of each GPU"),
    Option(
        "VCUDA_DEVICE_NAME",
        _VCUDA,
        Setting.DEVICE_NAME,
        _NONE,
        "text",
        "the GPU's name as NVML tells it, where a limit is set",
    ),
    Option(
        "VCUDA_LOG_LEVEL",
        _VCUDA,
        Setting.LOG_LEVEL,
        _NONE,
        "word",
        "off, none; error, err, critical, crit, fatal; warn, warning; info; debug; trace",
    ),
    *_ignored(
        _VCUDA, "lines go to stderr, or to GPUFENCE_LOG_FILE", "VCUDA_LOG_SINK", "VCUDA_LOG_FILE"
    ),
    *_ignored(_VCUDA, "of a branch; changed the reported total only", "VCUDA_OVER_SUB_RATIO"),
    Option(
        "TENSOR_FUSION_CUDA_MEM_LIMIT",
        _RS,
        Setting.MEMORY_MAP,
        _NONE,
        'JSON: {"<NVML index or UUID>": bytes}',
        "bytes by GPU; 0 means no limit",
    ),
    Option(
        "TENSOR_FUSION_CUDA_UP_LIMIT",
        _RS,
        Setting.CORES_MAP,
        _NONE,
        'JSON: {"<NVML index or UUID>": percent}',
        "share of GPU time; read and checked, not enforced by this build",
    ),
    Option(
        "TF_CUDA_MEMORY_LIMIT",
        _RS,
        Setting.MEMORY_MEGABYTES,
        _NONE,
        "whole number",
        "MiB of each GPU",
    ),
    Option(
        "TF_GPU_MEMORY_LIMIT",
        _RS,
        Setting.MEMORY_MEGABYTES,
        _NONE,
        "whole number",
        "the same; of both the lower",
    ),
    Option(
        "ENABLE_CUDA_HOOKS",
        _RS,
        Setting.HOOKS,
        _NONE,
        "false, or anything",
        "exactly false takes the limits of vgpu.rs away, with a warning",
    ),
    Option(
        "TF_ENABLE_LOG",
        _RS,
        Setting.LOG_SWITCH,
        _NONE,
        "off, 0, false, or anything",
        "off silences what vgpu.rs's variables ask for",
    ),
    Option(
        "TF_LOG_LEVEL",
        _RS,
        Setting.LOG_LEVEL,
        _NONE,
        "words with commas",
        "the most verbose of its directives",
    ),
    *_ignored(_RS, "lines go to stderr, or to GPUFENCE_LOG_FILE", "TF_LOG_PATH"),
    *_ignored(_RS, "NVML is answered truthfully about the limit, always", "ENABLE_NVML_HOOKS"),
    *_ignored(_RS, "always so here", "TF_SKIP_HOOKS_IF_NO_LIMIT"),
    *_ignored(_RS, "the loader finds the driver", "TF_CUDA_LIB_PATH", "TF_NVML_LIB_PATH"),
    Option(
        "ALNAIR_ID",
        _ALNAIR,
        Setting.ID,
        _NONE,
        "text",
        "turns Alnair's limits on; the container's identity",
    ),
    Option(
        "ALNAIR_WORKSPACE_PATH",
        _ALNAIR,
        Setting.WORKSPACE,
        _NONE,
        "path",
        "where `limits` stands; default /var/lib/alnair/workspace",
    ),
    Option(
        "ALNAIR_VGPU_COMPUTE_PERCENTILE",
        _ALNAIR,
        Setting.CORES,
        _NONE,
        "percent above 0",
        "share of GPU time; read and checked, not enforced by this build",
    ),
    *_ignored(_ALNAIR, "nothing is registered", "ALNAIR_SOCKET"),
)

_OWN_PREFIX = "GPUFENCE_"


def find(name: str) -> tuple[Option, str] | None:
    """The option that a variable spells, and the key behind it: "", or '_' and what follows."""
    for option in OPTIONS:
        if name.startswith(option.name):
            key = name[len(option.name) :]
            if not key or (option.keys is not Keys.NONE and key[0] == "_"):
                return option, key
    return None


def file_key(option: Option) -> str | None:
    """How the config file spells an option of ours; None: it has no place there."""
    if option.dialect is not Dialect.GPUFENCE:
        return None
    if option.setting in (Setting.CONFIG_FILE, Setting.ELSEWHERE):
        return None
    return option.name[len(_OWN_PREFIX) :].lower()


def find_in_file(name: str) -> tuple[Option, str] | None:
    """The same as find(), for a key of the config file."""
    for option in OPTIONS:
        base = file_key(option)
        if base is not None and name.startswith(base):
            key = name[len(base) :]
            if not key or (option.keys is not Keys.NONE and key[0] == "_"):
                return option, key
    return None
