"""Words rather than amounts: policies, what is switched off, identity, folders.

The same as lib/src/config/switches.cpp.
"""

from __future__ import annotations

from . import sizes
from .limits import Claim, Kind
from .options import Dialect, Setting
from .reading import NO_UUID, Reading, c_text
from .sizes import THOUSAND, Fault, TextError
from .sources import ConfigError, Origin, Target


def drop_disabled(reading: Reading) -> None:
    """GPUFENCE_DISABLE: variables alone; what an operator wrote into a file still holds."""
    disable = reading.statements.find(Dialect.GPUFENCE, Setting.DISABLE)
    if disable is None:
        return
    try:
        on = sizes.parse_switch(disable.text)
    except TextError as error:
        raise reading.refuse(disable, error.fault) from None
    statements = reading.statements.all
    kept = [
        each
        for each in statements
        if each.origin not in (Origin.ENVIRONMENT, Origin.FIRST_PROCESS)
        or each.option.setting >= Setting.HOOKS
    ]
    if on and len(kept) < len(statements):
        source = reading.statements.describe(disable)
        reading.claims.note(f"{source} takes the limits of the variables away")
    if on:
        reading.statements.all = kept


def read_identity(reading: Reading) -> None:
    """The container's name, and the GPU's."""
    claims = reading.claims
    claims.device_name = reading.text(Dialect.VCUDA, Setting.DEVICE_NAME)[:95]
    pod = reading.text(Dialect.VGPU_MANAGER, Setting.POD_UID)
    name = reading.text(Dialect.VGPU_MANAGER, Setting.CONTAINER_NAME)
    joined = f"{pod}_{name}" if pod and name else ""
    own = reading.text(Dialect.GPUFENCE, Setting.CONTAINER)
    identity = own or joined or reading.text(Dialect.ALNAIR, Setting.ID)
    claims.container = c_text(identity)[:128]


def read_group(reading: Reading) -> None:
    """HAMi's name for a container that nobody else named; a long path differs at its end."""
    cache = reading.text(Dialect.HAMI, Setting.CONTAINER)
    reading.claims.container = reading.claims.container or c_text(cache[-128:])


def read_switches(reading: Reading) -> None:
    """What a policy or a switch of one dialect takes away from it."""
    policy = reading.text(Dialect.HAMI, Setting.CORE_POLICY)
    word = policy.lower() if policy.isascii() else policy
    reading.hidden.hami_cores = word == "disable"
    if word not in ("", "disable", "force", "default"):
        shown = sizes.quote(policy)
        reading.claims.note(f"GPU_CORE_UTILIZATION_POLICY={shown} is unknown: the limit holds")
    reading.hidden.vgpu_rs = reading.text(Dialect.VGPU_RS, Setting.HOOKS) == "false"
    if reading.hidden.vgpu_rs and any(
        each.option.dialect is Dialect.VGPU_RS and each.option.setting < Setting.HOOKS and each.text
        for each in reading.statements.all
    ):
        reading.claims.note("ENABLE_CUDA_HOOKS=false takes the limits of vgpu.rs away")
    _read_own_policy(reading)


def _read_own_policy(reading: Reading) -> None:
    """`shared` is a soft share of everything, for all GPUs: one stated beside it holds."""
    policy = reading.statements.find(Dialect.GPUFENCE, Setting.CORE_POLICY)
    word = sizes.lower(policy.text) if policy else "always"
    reading.hidden.own_cores = word == "off"
    if policy is None or word in ("off", "always"):
        return
    if word != "shared":
        raise reading.refuse(policy, Fault.POLICY)
    layer = 1 if policy.origin is Origin.CONFIG_FILE else 0
    source = reading.statements.describe(policy)
    everything = 100 * THOUSAND
    reading.add(
        Claim(
            Kind.SOFT_CORES, Target.EVERY, False, Dialect.GPUFENCE, layer, 0, NO_UUID,
            everything, source,
        )
    )  # fmt: skip


def read_scope(reading: Reading) -> None:
    """Whose limit it is, and the folders."""
    scope = reading.text(Dialect.GPUFENCE, Setting.SCOPE)
    if scope not in ("", "process", "container"):
        raise ConfigError(
            f"GPUFENCE_SCOPE='{sizes.quote(scope)}' is neither container nor process. "
            "Write one of them"
        )
    reading.claims.process_scope = scope == "process"
    reading.claims.state_folder = _folder(reading, Setting.STATE_FOLDER, "GPUFENCE_STATE_DIR")
    reading.claims.node_folder = _folder(reading, Setting.NODE_FOLDER, "GPUFENCE_NODE_DIR")


def _folder(reading: Reading, setting: Setting, name: str) -> str:
    folder = reading.text(Dialect.GPUFENCE, setting)
    if folder and (folder[0] != "/" or len(folder) > 255):
        raise ConfigError(f"{name} is no absolute path of at most 255 bytes. Write /run/gpufence")
    return c_text(folder)
