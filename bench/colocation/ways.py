"""The ways to share a GPU, as environments.

Must not know scenes or programs, nor how MPS is started.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .scenes import BY_THREADS, OURS, OVER_MPS, Tenant

MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
FOREIGN = ("GPUFENCE_", "LD_PRELOAD", "CUDA_MPS_", "CUDA_DEVICE_", "CUDA_TASK_")


@dataclass(frozen=True, slots=True)
class Way:
    """With or without a build of the library, with or without MPS."""

    name: str
    build: Path | None = None
    mps: bool = False
    threads: bool = False  # MPS holds each tenant to its limit in percent of the threads
    priority: bool = False  # MPS has those of low priority behind the others
    settings: tuple[tuple[str, str], ...] = ()  # variables that every tenant has besides
    library: Path | None = None  # another limiter's; {cores} and {state} in settings are filled in

    @property
    def kind(self) -> str:
        """What a promise is about: ours, ours+mps, or the name of a way without us."""
        if self.build is None:
            return self.name
        if self.threads:
            return BY_THREADS
        return OVER_MPS if self.mps else OURS


BARE = Way("bare")
THREADS = Way("mps-threads", mps=True, threads=True)
PRIORITY = Way("mps-priority", mps=True, priority=True)


def build_of(text: str) -> Way:
    """A way by [NAME=]DIR[,VARIABLE=VALUE ...]; without a name it is called ours.

    Raises:
        ValueError: a setting has no value.
    """
    first, *rest = text.split(",")
    name, _, folder = first.rpartition("=")
    settings = [setting.partition("=") for setting in rest]
    if not all(sign for _, sign, _ in settings):
        raise ValueError(f"'{text}' is no [NAME=]DIR[,VARIABLE=VALUE ...]")
    pairs = tuple((variable, value) for variable, _, value in settings)
    return Way(name or OURS, Path(folder).resolve(), settings=pairs)


def ways(builds: Sequence[Way], wanted: Sequence[str]) -> list[Way]:
    """All ways in the order in which they are measured, or the wanted ones, by name or kind.

    MPS with a part of the threads for each, or with priorities, is measured where it is wanted.

    Raises:
        ValueError: a wanted name is none.
    """
    every = [BARE, *builds, Way("mps", mps=True)]
    every += [replace(build, name=f"{build.name}+mps", mps=True) for build in builds]
    rare = [THREADS, PRIORITY]
    rare += [
        replace(build, name=f"{build.name}+mps-threads", mps=True, threads=True) for build in builds
    ]
    for name in wanted:
        if not any(name in (way.name, way.kind) for way in (*every, *rare)):
            raise ValueError(f"no way is called '{name}'")
    if not wanted:
        return every
    return [way for way in (*every, *rare) if {way.name, way.kind} & {*wanted}]


@dataclass(frozen=True, slots=True)
class Machine:
    """What all programs of a session share: the driver under them, and a folder for their files."""

    folder: Path
    sim: Path | None = None  # the simulated driver's folder
    gpus: int = 1

    @property
    def mps_pipes(self) -> Path:
        """Where MPS's daemon and its clients meet."""
        return self.folder / "mps"

    def environment(self) -> dict[str, str]:
        """Of a program under the bare driver."""
        env = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
        # Multicast over NVLink needs a fabric manager that not every host runs.
        env |= {"NCCL_NVLS_ENABLE": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if self.sim is not None:
            env["LD_LIBRARY_PATH"] = str(self.sim)
            env["GPUFENCE_SIM_STATE"] = str(self.folder / "machine")
        return env


def environment(
    machine: Machine, way: Way, scene: Path, place: int, tenant: Tenant
) -> dict[str, str]:
    """Of a tenant's programs. `scene` is a folder that this scene's tenants have for themselves."""
    env = machine.environment()
    if way.mps:
        env[MPS_PIPES] = str(machine.mps_pipes)
    if way.threads:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(tenant.limit)
    if way.priority and tenant.priority == "low":
        env["CUDA_MPS_CLIENT_PRIORITY"] = "1"  # below normal
    if way.library is not None:
        env["LD_PRELOAD"] = str(way.library)
        state = scene / f"state{place}"
        state.mkdir(parents=True, exist_ok=True)
        return env | {
            name: value.replace("{cores}", str(tenant.limit)).replace("{state}", str(state))
            for name, value in way.settings
            if "{memory_mib}" not in value  # scenes limit no memory
        }
    if way.build is None:
        return env
    node, state = scene / "node", scene / f"state{place}"
    for folder in (node, state):
        folder.mkdir(parents=True, exist_ok=True)
    library = way.build / "lib" / "libgpufence.so"
    env |= {
        "LD_PRELOAD": str(library),
        "GPUFENCE_CORE_LIMIT": str(tenant.limit),
        "GPUFENCE_NODE_DIR": str(node),
        "GPUFENCE_STATE_DIR": str(state),
        "GPUFENCE_CONTAINER": f"tenant{place}",
    }
    if way.threads:
        # As `gpufence run --mode mps`; what lends or orders GPU time has no meaning there.
        return env | {"GPUFENCE_CORE_MODE": "mps"} | dict(way.settings)
    known = library.read_bytes()
    for name, value in extras(tenant).items():
        # A build from before a setting refuses to work beside a variable that it does not know.
        if name.encode() in known:
            env[name] = value
    return env | dict(way.settings)


def extras(tenant: Tenant) -> dict[str, str]:
    """The settings of a tenant that not every build has."""
    values = {
        "GPUFENCE_CORE_SOFT_LIMIT": tenant.soft,
        "GPUFENCE_PRIORITY": tenant.priority,
        "GPUFENCE_WEIGHT": tenant.weight,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def unknown_settings(way: Way, tenants: Sequence[Tenant]) -> list[str]:
    """Variables that a scene wants and that this way does without."""
    if way.build is None:
        return []
    known = b"" if way.threads else (way.build / "lib" / "libgpufence.so").read_bytes()
    wanted = {name for tenant in tenants for name in extras(tenant)}
    return sorted(name for name in wanted if name.encode() not in known)
