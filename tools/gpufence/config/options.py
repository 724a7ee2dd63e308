"""What the variables of option_table.py are, and how a name is found among them.

lib/src/config/options.cpp says the same to the library and docs/configuration.md to people; a test
compares all three.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .option_table import TABLE


class Dialect(enum.IntEnum):
    """Whose variable it is; a limit that two of them name is the lower one."""

    GPUFENCE = 0
    HAMI = 1
    VGPU_MANAGER = 2
    VCUDA = 3
    VGPU_RS = 4
    ALNAIR = 5
    NVIDIA = 6

    @property
    def title(self) -> str:
        """Its name among people."""
        return _TITLES[self]


_TITLES = ("gpufence", "HAMi-core", "vgpu-manager", "vcuda-hook", "vgpu.rs", "Alnair", "NVIDIA")


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
    PRIORITY = 10
    WEIGHT = 11
    CORE_BURST = 12
    CORE_FLOOR = 13
    HOOKS = 14
    DISABLE = 15
    SCOPE = 16
    STATE_FOLDER = 17
    NODE_FOLDER = 18
    CONTAINER = 19
    CONFIG_FILE = 20
    POD_UID = 21
    CONTAINER_NAME = 22
    DEVICE_NAME = 23
    HOST_DEVICES = 24
    HOST_DEVICE = 25
    OLD_HOST_DEVICES = 26
    VISIBLE_DEVICES = 27
    ID = 28
    WORKSPACE = 29
    SHARED_FOLDER = 30
    SHARED_FILE = 31
    HYPERVISOR_ADDRESS = 32
    HYPERVISOR_PORT = 33
    LOG_LEVEL = 34
    LOG_SWITCH = 35
    LOG_SINK = 36
    LOG_FILE = 37
    ELSEWHERE = 38
    IGNORED = 39


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


_KEYS = {"": Keys.NONE, "<i>": Keys.INDEX, "<i>, <uuid>": Keys.INDEX_OR_UUID}

OPTIONS: tuple[Option, ...] = tuple(
    Option(name, Dialect[dialect], Setting[setting], _KEYS[keys], text, meaning)
    for dialect, rows in TABLE.items()
    for name, setting, keys, text, meaning in rows
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
    if option.setting in (Setting.CONFIG_FILE, Setting.DISABLE):
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
