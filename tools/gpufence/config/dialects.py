"""From statements and files to claims: what each dialect means by what it writes.

The same as lib/src/config/{claims,amounts,maps,host_devices}.cpp.
"""

from __future__ import annotations

from dataclasses import replace

from . import amounts, dialect_claims, log_settings, read_terms, sizes, sources, switches
from .dialect_files import MOST_DEVICES, json_numbers, uuid_list
from .limits import Claim, Claims, Kind
from .options import Dialect, Option, Setting
from .reading import NO_UUID, Reading
from .sizes import THOUSAND, Fault, TextError
from .sources import ConfigError, Origin, Statement, System, Target


def read_claims(system: System) -> Claims:
    """Read every source.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    reading = Reading(system, sources.gather(system))
    log_settings.read(reading)
    switches.drop_disabled(reading)
    switches.read_identity(reading)
    switches.read_switches(reading)
    dialect_claims.read_vgpu_config(reading)
    dialect_claims.read_vcuda_file(reading)
    dialect_claims.read_alnair_workspace(reading)
    dialect_claims.read_shared_file(reading)
    _read_amounts(reading)
    _read_maps(reading)
    switches.read_group(reading)
    _drop_soft_without_hard(reading)
    read_terms.read(reading)
    try:
        # Also without a limit: an operator may have set one where the container keeps its region.
        switches.read_scope(reading)
    except ConfigError:
        if reading.claims.any_limit:
            raise
    return reading.claims


def _read_amounts(reading: Reading) -> None:
    host = None if reading.hidden.vgpu_manager else _host_devices(reading)
    for statement in reading.statements.all:
        option = statement.option
        if option.setting not in amounts.SETTINGS or _is_hidden(reading, option):
            continue
        keyed = statement.target is not Target.EVERY
        empty_is_off = keyed and option.dialect is Dialect.VGPU_MANAGER
        if not statement.text and not empty_is_off:
            continue
        try:
            kind, amount, percent = amounts.parse(statement.text, option)
        except TextError as error:
            raise reading.refuse(statement, error.fault) from None
        if keyed and not amount and option.dialect is Dialect.HAMI:
            continue  # NAME_<i>=0 leaves the word to NAME
        target, uuid = statement.target, statement.uuid
        if option.dialect is Dialect.VGPU_MANAGER and keyed:
            target, uuid = Target.NVML_INDEX, NO_UUID
            if host is not None:
                target, uuid = Target.UUID, host.get(statement.index, NO_UUID)
        layer = 1 if statement.origin is Origin.CONFIG_FILE else 0
        source = reading.statements.describe(statement)
        index = statement.index
        reading.add(
            Claim(kind, target, percent, option.dialect, layer, index, uuid, amount, source)
        )


def _is_hidden(reading: Reading, option: Option) -> bool:
    hidden = reading.hidden
    return {
        Dialect.GPUFENCE: hidden.own_cores
        and option.setting in (Setting.CORES, Setting.SOFT_CORES),
        Dialect.HAMI: hidden.hami_cores and option.setting is Setting.CORES,
        Dialect.VGPU_MANAGER: hidden.vgpu_manager,
        Dialect.VCUDA: hidden.vcuda_memory and option.setting is Setting.MEMORY,
        Dialect.VGPU_RS: hidden.vgpu_rs,
        Dialect.ALNAIR: hidden.alnair,
        Dialect.NVIDIA: False,
    }[option.dialect]


def _host_devices(reading: Reading) -> dict[int, bytes] | None:
    """vgpu-manager's indices as UUIDs; None: nothing maps them, so NVML's order is meant."""
    manager = Dialect.VGPU_MANAGER
    if not any(
        each.option.dialect is manager
        and each.option.setting is not Setting.HOST_DEVICE
        and each.target is Target.ORDINAL
        for each in reading.statements.all
    ):
        return None
    listed = reading.text(manager, Setting.HOST_DEVICES) or reading.text(
        manager, Setting.OLD_HOST_DEVICES
    )
    host = uuid_list(listed) if listed else None
    if listed and host is None:
        raise ConfigError(
            "MANAGER_VISIBLE_DEVICES or GPU_DEVICES_UUID is no list of at most 64 GPU UUIDs. "
            "Write them with commas"
        )
    # The last resort may also say "all" or count GPUs as NVML does; then NVML's order is meant.
    visible = reading.text(manager, Setting.VISIBLE_DEVICES)
    if host is None and visible:
        host = uuid_list(visible)
    for each in reading.statements.all:
        if (
            each.option.setting is Setting.HOST_DEVICE
            and each.target is Target.ORDINAL
            and each.text
        ):
            try:
                uuid = sizes.parse_uuid(each.text.strip(" "))
            except TextError:
                raise reading.refuse(each, Fault.UUID) from None
            if each.index >= MOST_DEVICES:
                raise reading.refuse(each, Fault.UUID)
            host = {**(host or {}), each.index: uuid}
    return host


def _read_maps(reading: Reading) -> None:
    if reading.hidden.vgpu_rs:
        return
    for statement in reading.statements.all:
        setting = statement.option.setting
        if setting not in (Setting.MEMORY_MAP, Setting.CORES_MAP) or not statement.text:
            continue
        kind = Kind.MEMORY if setting is Setting.MEMORY_MAP else Kind.CORES
        try:
            _read_map(reading, statement, kind)
        except TextError as error:
            raise reading.refuse(statement, error.fault) from None


def _read_map(reading: Reading, statement: Statement, kind: Kind) -> None:
    seen = set()
    for key, number in json_numbers(statement.text):
        target, index, uuid = _map_key(key)
        amount = number
        if kind is Kind.CORES:
            if number > 100:
                raise TextError(Fault.ABOVE_HUNDRED)
            amount = 0 if number == 100 else number * THOUSAND
        if (target, index, uuid) in seen:
            raise TextError(Fault.TWICE)
        seen.add((target, index, uuid))
        source = reading.statements.describe(statement)
        reading.add(Claim(kind, target, False, Dialect.VGPU_RS, 0, index, uuid, amount, source))


def _map_key(key: str) -> tuple[Target, int, bytes]:
    try:
        return Target.UUID, 0, sizes.parse_uuid(key)
    except TextError:
        index = sizes.parse_index(key)
    if index is None:
        raise TextError(Fault.DEVICE_KEY)
    return Target.NVML_INDEX, index, NO_UUID


def _drop_soft_without_hard(reading: Reading) -> None:
    """A soft share above no limit means nothing; beside an explicit "no limit" it is clear."""
    claims = reading.claims.claims
    hard = {each.dialect for each in claims if each.kind is Kind.CORES}
    for position, each in enumerate(claims):
        if each.kind is Kind.SOFT_CORES and each.amount and each.dialect not in hard:
            claims[position] = replace(each, amount=0)
            own = each.dialect is Dialect.GPUFENCE
            name = "GPUFENCE_CORE_LIMIT" if own else "CUDA_CORE_LIMIT"
            reading.claims.note(f"{each.source} has no effect without {name}")
