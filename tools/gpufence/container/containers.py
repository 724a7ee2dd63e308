"""Which containers this machine has files of: found by name, never made.

A container is known by its region (its processes made it), its limits file (an operator or
`gpufence run` made it) or both. Must not know what is in them, nor output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufence.config.sources import ConfigError, Sources, System
from gpufence.errors import ToolError
from gpufence.machine.people import People
from gpufence.state import limits_bytes, limits_file, region, shared_layout
from gpufence.state import places as state_places
from gpufence.state.shared_file import folders

from . import called, lifetimes

_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Container:
    """Where one container's files are.

    `region` and `limits` are None where there is none; `owner` is the uid whose files count beside
    root's: the region's owner's, or the limits file's while no program used a GPU.
    """

    name: str
    region: Path | None
    limits: Path | None
    owner: int

    @property
    def limits_path(self) -> Path:
        """Where its limits file is, or belongs."""
        if self.limits is not None:
            return self.limits
        assert self.region is not None
        return limits_file.path_of(self.region.parent, self.name)


def places(given: str | None) -> tuple[Path, ...]:
    """The folders to look into: --state-dir, else GPUFENCE_STATE_DIR or the config file's first."""
    return folders(core_environment(), given)


def of_agent(folder: str) -> list[Path]:
    """Where containers of `gpufence node serve` keep their ledgers, each apart from the others."""
    return sorted(Path(folder).glob("containers/*/state"))


def find(given: str | None) -> list[Container]:
    """Every container, by name.

    Args:
        given: the only folder to look into; None for the usual ones.
    """
    looked = places(given)
    regions: dict[str, Path] = {}
    suffix = f".v{shared_layout.REGION_VERSION}"
    for path in region.find(core_environment(), given):
        if path.name.endswith(suffix):
            name = path.name.removeprefix("gpufence-").removesuffix(suffix)
            regions.setdefault(name, path)
    names = set(regions)
    suffix = f".limits{shared_layout.LIMITS_VERSION}"
    for folder in looked:
        for path in folder.glob(f"gpufence-*{suffix}"):
            names.add(path.name.removeprefix("gpufence-").removesuffix(suffix))
    found = (_container(name, regions.get(name), looked) for name in sorted(names))
    return [each for each in found if each.region or each.limits]


def one(name: str, given: str | None, *, whole: bool = False) -> Container:
    """The container of this name, the only one whose name begins so, or that its engine calls so.

    Args:
        name: as `status` shows it.
        given: the only folder to look into; None for the usual ones.
        whole: the beginning of a name does not do.

    Raises:
        ToolError: exit 1, when there is none or more than one.
    """
    known = find(given)
    for wanted in (name, reduced(name)):
        for container in known:
            if container.name == wanted:
                return container
    begins = [each for each in known if name and not whole and each.name.startswith(name)]
    begins = begins or _called(name, known)
    if len(begins) == 1:
        return begins[0]
    if begins:
        raise ToolError(
            what=f"container '{name}' is ambiguous",
            why=f"{len(begins)} begin so, such as '{begins[0].name}' and '{begins[1].name}'",
            fix="Write more of the name, or one of these",
        )
    raise ToolError(
        what=f"no container '{name}'",
        why="no limits and no program of that name are in " + ", ".join(map(str, places(given))),
        fix="List what there is with `gpufence status`, or name its folder with --state-dir",
    )


def _called(name: str, known: list[Container]) -> list[Container]:
    people, living = People(), lifetimes.Living()
    return [
        each
        for each in known
        if called.means(called.names(each.name, each.region, people, living), name)
    ]


def reduced(name: str) -> str:
    """The name as files have it; the same as NameContainer in lib/src/state/identity.cpp."""
    raw = os.fsencode(name)
    kept = re.sub(rb"[^A-Za-z0-9._-]", b"_", raw[:_LONGEST_NAME])
    if kept == raw and not kept.startswith(b"."):
        return kept.decode()
    return f"{kept.decode()}-{limits_bytes.check_of(raw):016x}"


def _container(name: str, region_path: Path | None, looked: tuple[Path, ...]) -> Container:
    owner = region_path.stat().st_uid if region_path else None
    for folder in (region_path.parent,) if region_path else looked:
        path = limits_file.path_of(folder, name)
        try:
            found = path.lstat()
        except OSError:
            continue
        if limits_file.counts(found, owner):
            return Container(name, region_path, path, found.st_uid if owner is None else owner)
    return Container(name, region_path, None, owner if owner is not None else os.geteuid())


def library_places(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the library looks for a container's files, in its order."""
    own = environment.get("GPUFENCE_STATE_DIR") or core_environment().get("GPUFENCE_STATE_DIR")
    return state_places.of(own)


def core_environment() -> Mapping[str, str]:
    """This command's; a state folder that only the config file names is added."""
    environment = dict(os.environ)
    if not environment.get("GPUFENCE_STATE_DIR"):
        try:
            environment["GPUFENCE_STATE_DIR"] = Sources.of(System.own()).state_folder
        except ConfigError:
            return environment
    return environment
