"""The files of vgpu-manager, vcuda-hook, Alnair and vgpu.rs: where they are and what they claim.

The same as lib/src/config/{dialect_files,shared_file}.cpp.
"""

from __future__ import annotations

import re
import socket
from dataclasses import replace

from . import sizes, sources
from .dialect_files import (
    VGPU_DEVICES,
    FileError,
    VgpuDevice,
    VgpuRecord,
    read_shared_device,
    read_yaml_map,
    shared_devices,
    stable_vgpu_record,
)
from .limits import Claim, Kind
from .options import Dialect, Setting
from .reading import NO_UUID, Reading, c_text
from .sizes import THOUSAND, Fault, TextError
from .sources import ConfigError, FileResult, Target

VGPU_CONFIG_PATH = "/etc/vgpu-manager/config/vgpu.config"
VCUDA_PATH = "/etc/vcuda/config.yaml"
ALNAIR_FOLDER = "/var/lib/alnair/workspace"
SHARED_FOLDER = "/run/tensor-fusion/shm"


def read_vgpu_config(reading: Reading) -> None:
    """vgpu-manager: a valid file hides the variables."""
    try:
        record = stable_vgpu_record(reading.system.root, VGPU_CONFIG_PATH)
    except FileError as error:
        raise ConfigError(
            f"{VGPU_CONFIG_PATH} {error}. Have vgpu-manager write it anew, or take it away"
        ) from None
    if record is None:
        return
    reading.hidden.vgpu_manager = True
    for index, device in enumerate(record.devices):
        if device:
            _add_vgpu_device(reading, device, index)
    _compare_with_variables(reading, record)
    if not reading.claims.container and record.pod_uid and record.container:
        reading.claims.container = f"{record.pod_uid}_{record.container}"[:128]


def _add_vgpu_device(reading: Reading, device: VgpuDevice, index: int) -> None:
    claim = Claim(
        Kind.MEMORY,
        Target.UUID,
        False,
        Dialect.VGPU_MANAGER,
        0,
        index,
        device.uuid,
        device.memory_bytes,
        f"device {index} in {VGPU_CONFIG_PATH}",
    )
    reading.add(claim)
    if device.hard_percent is not None:
        hard = 0 if device.hard_percent == 100 else device.hard_percent * THOUSAND
        reading.add(replace(claim, kind=Kind.CORES, amount=hard))
    if device.soft_percent is not None:
        soft = device.soft_percent * THOUSAND
        reading.add(replace(claim, kind=Kind.SOFT_CORES, amount=soft))
    if device.oversubscribe:
        reading.add(replace(claim, kind=Kind.OVERSUBSCRIBE, amount=device.oversubscribe))


def _compare_with_variables(reading: Reading, record: VgpuRecord) -> None:
    """A stale file overrules new variables without a word; ours says one."""
    for each in reading.statements.all:
        option = each.option
        if (
            option.dialect is not Dialect.VGPU_MANAGER
            or option.setting is not Setting.MEMORY
            or each.target is not Target.ORDINAL
            or each.index >= VGPU_DEVICES
        ):
            continue
        device = record.devices[each.index]
        in_file = device.memory_bytes if device else 0
        try:
            size = sizes.parse_size(each.text) if each.text else sizes.Size(0, False)
        except TextError:
            size = None
        if size is None or size.percent_of_device or size.amount != in_file:
            source = reading.statements.describe(each)
            reading.claims.note(f"{source} has no effect: {VGPU_CONFIG_PATH} says otherwise")
            return


def read_vcuda_file(reading: Reading) -> None:
    """vcuda-hook: each key hides its variable."""
    content = sources.read_file(reading.system.root, VCUDA_PATH, sources.SMALL_FILE_BYTES)
    if content is FileResult.MISSING:
        return
    fix = "Write `memory_limit: 10GiB`"
    if isinstance(content, FileResult):
        raise ConfigError(f"{VCUDA_PATH} cannot be read or is too large. {fix}")
    try:
        memory, name = read_yaml_map(
            content.decode("latin-1"),
            (
                ("memory_limit", "memoryLimit"),
                ("device_name", "target_device", "target_device_name"),
            ),
        )
    except FileError as error:
        raise ConfigError(f"{VCUDA_PATH} line {error} cannot be read. {fix}") from None
    if name is not None:
        reading.claims.device_name = c_text(name)[:95]
    if memory is not None:
        reading.hidden.vcuda_memory = True
        _add_file_claim(reading, Dialect.VCUDA, VCUDA_PATH, "memory_limit", memory, False)


def read_alnair_workspace(reading: Reading) -> None:
    """Alnair: memory from the workspace, while ALNAIR_ID turns it on."""
    reading.hidden.alnair = not reading.text(Dialect.ALNAIR, Setting.ID)
    if reading.hidden.alnair:
        return
    path = (reading.text(Dialect.ALNAIR, Setting.WORKSPACE) or ALNAIR_FOLDER) + "/limits"
    if len(path) >= 160:
        raise ConfigError("ALNAIR_WORKSPACE_PATH is too long. Name a shorter path")
    content = sources.read_file(reading.system.root, path, sources.SMALL_FILE_BYTES)
    text = "" if isinstance(content, FileResult) else content.decode("latin-1")
    for line in text.split("\n"):
        if line.startswith("vmem:"):
            amount = line[len("vmem:") :].strip(" \t\r")
            _add_file_claim(reading, Dialect.ALNAIR, path, "vmem", amount, True)
            return
    raise ConfigError(
        f"ALNAIR_ID is set, but {path} holds no readable line vmem:BYTES. Mount the workspace"
    )


def read_shared_file(reading: Reading) -> None:
    """vgpu.rs: what its hypervisor shares with a pod hides the variables."""
    if reading.hidden.vgpu_rs:
        return
    named = reading.text(Dialect.VGPU_RS, Setting.SHARED_FILE)
    folder = reading.text(Dialect.VGPU_RS, Setting.SHARED_FOLDER) or SHARED_FOLDER
    path = named or f"{folder}/shm"
    if len(path) >= 192:
        raise ConfigError("TF_SHM_FILE or SHM_PATH is too long. Name a shorter path")
    if not named:
        _read_hypervisor(reading)
    content = sources.read_file(reading.system.root, path, sources.SMALL_FILE_BYTES)
    # SHM_PATH is a name that others use as well: only a file there says that ours is meant.
    if content is FileResult.MISSING and not named:
        return
    devices = None if isinstance(content, FileResult) else shared_devices(content)
    if devices is None:
        raise ConfigError(
            f"{path} is not what vgpu.rs's hypervisor shares (layout 2). "
            "Mount its file, or take it away"
        )
    reading.hidden.vgpu_rs = True
    for index, raw in devices:
        try:
            device = read_shared_device(raw)
        except FileError as error:
            fix = "Have the hypervisor write it anew, or take it away"
            raise ConfigError(f"{path} {error}. {fix}") from None
        memory = Claim(
            Kind.MEMORY,
            Target.UUID,
            False,
            Dialect.VGPU_RS,
            0,
            index,
            device.uuid,
            device.memory_bytes,
            f"GPU {index} in {path}",
        )
        reading.add(memory)
        cores = 0 if device.percent == 100 else device.percent * THOUSAND
        reading.add(replace(memory, kind=Kind.CORES, amount=cores))


def _read_hypervisor(reading: Reading) -> None:
    """Whom a program will ask at cuInit; nobody is asked here."""
    address = reading.text(Dialect.VGPU_RS, Setting.HYPERVISOR_ADDRESS)
    port = reading.text(Dialect.VGPU_RS, Setting.HYPERVISOR_PORT)
    if not address or not port:
        return
    if not _is_address(address):
        shown = sizes.quote(address)
        raise ConfigError(
            f"HYPERVISOR_IP='{shown}' is no IPv4 or IPv6 address. Write the node's, or unset it"
        )
    if not re.fullmatch(r"0*[1-9][0-9]{0,4}", port) or int(port) > 65535:
        shown = sizes.quote(port)
        raise ConfigError(f"HYPERVISOR_PORT='{shown}' is no port. Write 1 to 65535, or unset it")
    reading.claims.hypervisor = f"{address} port {int(port)}"


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, c_text(text))
        except (OSError, ValueError):
            continue
        return len(text) < 64
    return False


def _add_file_claim(
    reading: Reading, dialect: Dialect, path: str, name: str, text: str, zero_is_limit: bool
) -> None:
    try:
        size = sizes.parse_size(text)
        if size.amount == 0 and zero_is_limit:
            raise TextError(Fault.ZERO)
    except TextError as error:
        why = sizes.describe(name, text, error.fault)
        raise ConfigError(f"{path}: {why}") from None
    source = f"{name}: {sizes.quote(text)} in {path}"
    reading.add(
        Claim(
            Kind.MEMORY,
            Target.EVERY,
            size.percent_of_device,
            dialect,
            0,
            0,
            NO_UUID,
            size.amount,
            source,
        )
    )
