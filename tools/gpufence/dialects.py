"""From statements and files to claims: what each dialect means by what it writes.

The same as lib/src/config/{amounts,maps,host_devices,dialect_files,switches,claims}.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import amounts, log_levels, sizes, sources
from .dialect_files import (
    MOST_DEVICES,
    VGPU_DEVICES,
    FileError,
    VgpuDevice,
    VgpuRecord,
    json_numbers,
    read_yaml_map,
    stable_vgpu_record,
    uuid_list,
)
from .limits import Claim, Claims, Kind
from .options import Dialect, Option, Setting
from .sizes import THOUSAND, Fault, TextError
from .sources import ConfigError, FileResult, Origin, Statement, Statements, System, Target

VGPU_CONFIG_PATH = "/etc/vgpu-manager/config/vgpu.config"
VCUDA_PATH = "/etc/vcuda/config.yaml"
ALNAIR_FOLDER = "/var/lib/alnair/workspace"
_MOST_CLAIMS = 512
_NO_UUID = bytes(16)


@dataclass(slots=True)
class _Hidden:
    """What one source of a dialect takes away from another."""

    vgpu_manager: bool = False
    vcuda_memory: bool = False
    own_cores: bool = False
    hami_cores: bool = False
    alnair: bool = False
    vgpu_rs: bool = False


def read_claims(system: System) -> Claims:
    """Read every source.

    Raises:
        ConfigError: where the library would make cuInit fail.
    """
    return _Reading(system, sources.gather(system)).run()


class _Reading:
    def __init__(self, system: System, statements: Statements) -> None:
        self._system = system
        self._statements = statements
        self._claims = Claims()
        self._hidden = _Hidden()

    def run(self) -> Claims:
        self._read_log_level()
        self._read_identity()
        self._read_switches()
        self._read_vgpu_config()
        self._read_vcuda_file()
        self._read_alnair_workspace()
        self._read_amounts()
        self._read_maps()
        self._drop_soft_without_hard()
        if self._claims.any_limit:
            self._read_scope()
        return self._claims

    def _text(self, dialect: Dialect, setting: Setting) -> str:
        return self._statements.text_of(dialect, setting)

    def _add(self, claim: Claim) -> None:
        if len(self._claims.claims) == _MOST_CLAIMS:
            raise ConfigError(f"more than {_MOST_CLAIMS} limits are set. Set fewer")
        self._claims.claims.append(claim)

    def _refuse(self, statement: Statement, fault: Fault) -> ConfigError:
        name = sizes.quote(statement.name)
        if statement.origin is Origin.CONFIG_FILE:
            name += f" in {self._statements.config_path[:90]}"
        return ConfigError(sizes.describe(name, statement.text, fault))

    # Words rather than amounts.

    def _read_log_level(self) -> None:
        level = log_levels.asked_for(self._statements)
        self._claims.log_level = level.name or "warn"
        if level.unreadable:
            self._claims.note(f"{level.unreadable} is no log level")

    def _read_identity(self) -> None:
        claims = self._claims
        claims.device_name = self._text(Dialect.VCUDA, Setting.DEVICE_NAME)[:95]
        pod = self._text(Dialect.VGPU_MANAGER, Setting.POD_UID)
        name = self._text(Dialect.VGPU_MANAGER, Setting.CONTAINER_NAME)
        joined = f"{pod}_{name}" if pod and name else ""
        own = self._text(Dialect.GPUFENCE, Setting.CONTAINER)
        identity = own or joined or self._text(Dialect.ALNAIR, Setting.ID)
        claims.container = _c_text(identity)[:128]

    def _read_switches(self) -> None:
        policy = self._text(Dialect.HAMI, Setting.CORE_POLICY)
        word = policy.lower() if policy.isascii() else policy
        self._hidden.hami_cores = word == "disable"
        if word not in ("", "disable", "force", "default"):
            shown = sizes.quote(policy)
            self._claims.note(f"GPU_CORE_UTILIZATION_POLICY={shown} is unknown: the limit holds")
        self._hidden.vgpu_rs = self._text(Dialect.VGPU_RS, Setting.HOOKS) == "false"
        if self._hidden.vgpu_rs and any(
            each.option.dialect is Dialect.VGPU_RS
            and each.option.setting < Setting.HOOKS
            and each.text
            for each in self._statements.all
        ):
            self._claims.note("ENABLE_CUDA_HOOKS=false takes the limits of vgpu.rs away")
        self._read_own_policy()

    def _read_own_policy(self) -> None:
        """`shared` is a soft share of everything, for all GPUs, so that one stated beside it holds."""
        policy = self._statements.find(Dialect.GPUFENCE, Setting.CORE_POLICY)
        word = sizes.lower(policy.text) if policy else "always"
        self._hidden.own_cores = word == "off"
        if policy is None or word in ("off", "always"):
            return
        if word != "shared":
            raise self._refuse(policy, Fault.WORD)
        layer = 1 if policy.origin is Origin.CONFIG_FILE else 0
        source = self._statements.describe(policy)
        everything = 100 * THOUSAND
        self._add(
            Claim(
                Kind.SOFT_CORES, Target.EVERY, False, Dialect.GPUFENCE, layer, 0, _NO_UUID,
                everything, source,
            )
        )  # fmt: skip

    def _read_scope(self) -> None:
        scope = self._text(Dialect.GPUFENCE, Setting.SCOPE)
        if scope not in ("", "process", "container"):
            raise ConfigError(
                f"GPUFENCE_SCOPE='{sizes.quote(scope)}' is neither container nor process. "
                "Write one of them"
            )
        self._claims.process_scope = scope == "process"
        self._claims.state_folder = self._folder(Setting.STATE_FOLDER, "GPUFENCE_STATE_DIR")
        self._claims.node_folder = self._folder(Setting.NODE_FOLDER, "GPUFENCE_NODE_DIR")

    def _folder(self, setting: Setting, name: str) -> str:
        folder = self._text(Dialect.GPUFENCE, setting)
        if folder and (folder[0] != "/" or len(folder) > 255):
            raise ConfigError(
                f"{name} is no absolute path of at most 255 bytes. Write /run/gpufence"
            )
        return _c_text(folder)

    # Files.

    def _read_vgpu_config(self) -> None:
        try:
            record = stable_vgpu_record(self._system.root, VGPU_CONFIG_PATH)
        except FileError as error:
            raise ConfigError(
                f"{VGPU_CONFIG_PATH} {error}. Have vgpu-manager write it anew, or take it away"
            ) from None
        if record is None:
            return
        self._hidden.vgpu_manager = True
        for index, device in enumerate(record.devices):
            if device:
                self._add_vgpu_device(device, index)
        self._compare_with_variables(record)
        if not self._claims.container and record.pod_uid and record.container:
            self._claims.container = f"{record.pod_uid}_{record.container}"[:128]

    def _add_vgpu_device(self, device: VgpuDevice, index: int) -> None:
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
        self._add(claim)
        if device.hard_percent is not None:
            hard = 0 if device.hard_percent == 100 else device.hard_percent * THOUSAND
            self._add(replace(claim, kind=Kind.CORES, amount=hard))
        if device.soft_percent is not None:
            soft = device.soft_percent * THOUSAND
            self._add(replace(claim, kind=Kind.SOFT_CORES, amount=soft))
        if device.oversubscribe:
            self._add(replace(claim, kind=Kind.OVERSUBSCRIBE, amount=device.oversubscribe))

    def _compare_with_variables(self, record: VgpuRecord) -> None:
        """A stale file overrules new variables without a word; ours says one."""
        for each in self._statements.all:
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
                source = self._statements.describe(each)
                self._claims.note(f"{source} has no effect: {VGPU_CONFIG_PATH} says otherwise")
                return

    def _read_vcuda_file(self) -> None:
        content = sources.read_file(self._system.root, VCUDA_PATH, sources.SMALL_FILE_BYTES)
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
            self._claims.device_name = _c_text(name)[:95]
        if memory is not None:
            self._hidden.vcuda_memory = True
            self._add_file_claim(Dialect.VCUDA, VCUDA_PATH, "memory_limit", memory, False)

    def _read_alnair_workspace(self) -> None:
        self._hidden.alnair = not self._text(Dialect.ALNAIR, Setting.ID)
        if self._hidden.alnair:
            return
        path = (self._text(Dialect.ALNAIR, Setting.WORKSPACE) or ALNAIR_FOLDER) + "/limits"
        if len(path) >= 160:
            raise ConfigError("ALNAIR_WORKSPACE_PATH is too long. Name a shorter path")
        content = sources.read_file(self._system.root, path, sources.SMALL_FILE_BYTES)
        text = "" if isinstance(content, FileResult) else content.decode("latin-1")
        for line in text.split("\n"):
            if line.startswith("vmem:"):
                amount = line[len("vmem:") :].strip(" \t\r")
                self._add_file_claim(Dialect.ALNAIR, path, "vmem", amount, True)
                return
        raise ConfigError(
            f"ALNAIR_ID is set, but {path} holds no readable line vmem:BYTES. Mount the workspace"
        )

    def _add_file_claim(
        self, dialect: Dialect, path: str, name: str, text: str, zero_is_limit: bool
    ) -> None:
        try:
            size = sizes.parse_size(text)
            if size.amount == 0 and zero_is_limit:
                raise TextError(Fault.ZERO)
        except TextError as error:
            why = sizes.describe(name, text, error.fault)
            raise ConfigError(f"{path}: {why}") from None
        source = f"{name}: {sizes.quote(text)} in {path}"
        self._add(
            Claim(
                Kind.MEMORY,
                Target.EVERY,
                size.percent_of_device,
                dialect,
                0,
                0,
                _NO_UUID,
                size.amount,
                source,
            )
        )

    # Amounts that stand in one text each.

    def _read_amounts(self) -> None:
        host = None if self._hidden.vgpu_manager else self._host_devices()
        for statement in self._statements.all:
            option = statement.option
            if option.setting not in amounts.SETTINGS or self._is_hidden(option):
                continue
            keyed = statement.target is not Target.EVERY
            empty_is_off = keyed and option.dialect is Dialect.VGPU_MANAGER
            if not statement.text and not empty_is_off:
                continue
            try:
                kind, amount, percent = amounts.parse(statement.text, option)
            except TextError as error:
                raise self._refuse(statement, error.fault) from None
            if keyed and not amount and option.dialect is Dialect.HAMI:
                continue  # NAME_<i>=0 leaves the word to NAME
            target, uuid = statement.target, statement.uuid
            if option.dialect is Dialect.VGPU_MANAGER and keyed:
                target, uuid = Target.NVML_INDEX, _NO_UUID
                if host is not None:
                    target, uuid = Target.UUID, host.get(statement.index, _NO_UUID)
            layer = 1 if statement.origin is Origin.CONFIG_FILE else 0
            source = self._statements.describe(statement)
            index = statement.index
            self._add(
                Claim(kind, target, percent, option.dialect, layer, index, uuid, amount, source)
            )

    def _is_hidden(self, option: Option) -> bool:
        hidden = self._hidden
        return {
            Dialect.GPUFENCE: hidden.own_cores
            and option.setting in (Setting.CORES, Setting.SOFT_CORES),
            Dialect.HAMI: hidden.hami_cores and option.setting is Setting.CORES,
            Dialect.VGPU_MANAGER: hidden.vgpu_manager,
            Dialect.VCUDA: hidden.vcuda_memory and option.setting is Setting.MEMORY,
            Dialect.VGPU_RS: hidden.vgpu_rs,
            Dialect.ALNAIR: hidden.alnair,
        }[option.dialect]

    def _host_devices(self) -> dict[int, bytes] | None:
        """vgpu-manager's indices as UUIDs; None: nothing maps them, so NVML's order is meant."""
        manager = Dialect.VGPU_MANAGER
        if not any(
            each.option.dialect is manager
            and each.option.setting is not Setting.HOST_DEVICE
            and each.target is Target.ORDINAL
            for each in self._statements.all
        ):
            return None
        listed = self._text(manager, Setting.HOST_DEVICES) or self._text(
            manager, Setting.OLD_HOST_DEVICES
        )
        host = uuid_list(listed) if listed else None
        if listed and host is None:
            raise ConfigError(
                "MANAGER_VISIBLE_DEVICES or GPU_DEVICES_UUID is no list of at most 64 GPU UUIDs. "
                "Write them with commas"
            )
        # The last resort may also say "all" or count GPUs as NVML does; then NVML's order is meant.
        visible = self._text(manager, Setting.VISIBLE_DEVICES)
        if host is None and visible:
            host = uuid_list(visible)
        for each in self._statements.all:
            if (
                each.option.setting is Setting.HOST_DEVICE
                and each.target is Target.ORDINAL
                and each.text
            ):
                try:
                    uuid = sizes.parse_uuid(each.text.strip(" "))
                except TextError:
                    raise self._refuse(each, Fault.UUID) from None
                if each.index >= MOST_DEVICES:
                    raise self._refuse(each, Fault.UUID)
                host = {**(host or {}), each.index: uuid}
        return host

    def _read_maps(self) -> None:
        if self._hidden.vgpu_rs:
            return
        for statement in self._statements.all:
            setting = statement.option.setting
            if setting not in (Setting.MEMORY_MAP, Setting.CORES_MAP) or not statement.text:
                continue
            kind = Kind.MEMORY if setting is Setting.MEMORY_MAP else Kind.CORES
            try:
                self._read_map(statement, kind)
            except TextError as error:
                raise self._refuse(statement, error.fault) from None

    def _read_map(self, statement: Statement, kind: Kind) -> None:
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
            source = self._statements.describe(statement)
            self._add(Claim(kind, target, False, Dialect.VGPU_RS, 0, index, uuid, amount, source))

    def _drop_soft_without_hard(self) -> None:
        """A soft share above no limit means nothing; beside an explicit "no limit" it is clear."""
        claims = self._claims.claims
        hard = {each.dialect for each in claims if each.kind is Kind.CORES}
        for position, each in enumerate(claims):
            if each.kind is Kind.SOFT_CORES and each.amount and each.dialect not in hard:
                claims[position] = replace(each, amount=0)
                own = each.dialect is Dialect.GPUFENCE
                name = "GPUFENCE_CORE_LIMIT" if own else "CUDA_CORE_LIMIT"
                self._claims.note(f"{each.source} has no effect without {name}")


def _c_text(text: str) -> str:
    """A text as the library keeps it: up to a NUL that a file may hold."""
    return text.split("\0", 1)[0]


def _map_key(key: str) -> tuple[Target, int, bytes]:
    try:
        return Target.UUID, 0, sizes.parse_uuid(key)
    except TextError:
        index = sizes.parse_index(key)
    if index is None:
        raise TextError(Fault.DEVICE_KEY)
    return Target.NVML_INDEX, index, _NO_UUID
