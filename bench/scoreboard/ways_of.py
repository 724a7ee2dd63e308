"""The ways that the scoreboard compares, and the environment in which a limit is set in each.

Must not know what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from colocation.ways import BARE, MPS_PIPES, Machine, Way, build_of

from .figures import LIMIT_MIB

HOLES = ("{memory_mib}", "{cores}", "{state}")


def limiter_of(text: str) -> Way:
    """A way by NAME=LIBRARY[,VARIABLE=VALUE ...].

    A value may hold {memory_mib}, {cores} and {state}: a limit in MiB, one in percent, and a folder
    that a container's processes share.

    Raises:
        ValueError: it is not of that form, or there is no such library.
    """
    first, *rest = text.split(",")
    name, sign, path = first.partition("=")
    settings = tuple((each.partition("=")[0], each.partition("=")[2]) for each in rest)
    if not sign or not name or not all("=" in each for each in rest):
        raise ValueError(f"'{text}' is no NAME=LIBRARY[,VARIABLE=VALUE ...]")
    if not Path(path).is_file():
        raise ValueError(f"there is no library '{path}'")
    return Way(name, settings=settings, library=Path(path).resolve())


def all_ways(build: Path, limiters: list[Way], wanted: list[str]) -> list[Way]:
    """Bare first, as everything is compared with it.

    Raises:
        ValueError: a wanted name is none.
    """
    every = [BARE, build_of(f"ours={build}"), Way("mps", mps=True), *limiters]
    for name in wanted:
        if name not in {way.name for way in every}:
            raise ValueError(f"no way is called '{name}'")
    return [way for way in every if way is BARE or not wanted or way.name in wanted]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container is limited to, as text, so that an unreadable limit can be set as well."""

    memory_mib: str = str(LIMIT_MIB)
    cores: str = ""


def environment(machine: Machine, way: Way, limits: Limits, state: Path) -> dict[str, str]:
    """Of a container's process; `state` is a folder that the container's processes share."""
    state.mkdir(parents=True, exist_ok=True)
    env = machine.environment()
    if way.mps:
        env[MPS_PIPES] = str(machine.mps_pipes)
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={limits.memory_mib}M"
    elif way.library is not None:
        env["LD_PRELOAD"] = str(way.library)
        env |= filled(way, {"memory_mib": limits.memory_mib, "cores": limits.cores}, state)
    elif way.build is not None:
        env["LD_PRELOAD"] = str(way.build / "lib" / "libgpufence.so")
        env["GPUFENCE_STATE_DIR"] = str(state)
        env["GPUFENCE_MEMORY_LIMIT"] = f"{limits.memory_mib}MiB"
        if limits.cores:
            env["GPUFENCE_CORE_LIMIT"] = limits.cores
    return env


def filled(way: Way, values: dict[str, str], state: Path) -> dict[str, str]:
    """A limiter's variables; those of a limit that is not set are left away."""
    result = {}
    for name, text in way.settings:
        known = {"state": str(state), **{key: value for key, value in values.items() if value}}
        for key, value in known.items():
            text = text.replace(f"{{{key}}}", value)
        if not any(hole in text for hole in HOLES):
            result[name] = text
    return result
