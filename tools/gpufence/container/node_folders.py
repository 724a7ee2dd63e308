"""Node folders that only a program's own environment or file names: found by what it has mapped.

A program that holds a core limit has the time file mapped, wherever that lies. Of a program whose
mappings cannot be read nobody can tell. Must not know what such a file says (time_file.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpufence.machine.people import People
from gpufence.state import time_file
from gpufence.state.region import Region
from gpufence.state.shared_file import Life, Owner

_MAPPED = re.compile(r" (/\S.*)/gpufence-[^/]+\.cores[^/]*$", re.MULTILINE)

_Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """Every time file that was found; `asked` are the processes that have no other one."""

    files: tuple[Path, ...]
    asked: frozenset[_Key]

    def covers(self, owners: Iterable[Owner]) -> bool:
        """Whether no living process can hold a core limit of which `files` say nothing."""
        return all(_key(each) in self.asked for each in owners if each.life is Life.ALIVE)


def look(
    environment: Mapping[str, str],
    folder: str | None,
    regions: Iterable[Region],
    people: People,
    node: str | None = None,
) -> Reach:
    """Every time file of the usual folders, and of those that living processes use.

    Args:
        environment: as time_file.find takes it.
        folder: the only one to look into; None for the usual ones and the processes' own.
        regions: of the containers whose processes are asked.
        people: finds processes of other pid namespaces.
        node: one folder more to look into.
    """
    found = time_file.find(environment, folder)
    if node is not None:
        known = {_identity(path) for path in found}
        found += [path for path in time_file.find({}, node) if _identity(path) not in known]
    known = {_identity(path) for path in found}
    asked = set()
    living = {
        _key(owner): owner for each in regions for owner in each.owners if owner.life is Life.ALIVE
    }
    for key, owner in sorted(living.items()):
        own = _own_files(people.look_up(owner).pid)
        if own is None:
            continue
        if folder is None:
            new = {_identity(path): path for path in own}
            found += [path for identity, path in new.items() if identity not in known]
            known |= new.keys()
        if all(_identity(path) in known for path in own):
            asked.add(key)
    return Reach(tuple(found), frozenset(asked))


def _key(owner: Owner) -> _Key:
    return owner.pid_namespace, owner.pid, owner.start_ticks


def _own_files(pid: int | None) -> list[Path] | None:
    """The time files where a process has its own from; None where nobody can tell."""
    try:
        maps = os.fsdecode(Path(f"/proc/{pid}/maps").read_bytes())
    except OSError:
        return None
    files: list[Path] = []
    for text in sorted(set(_MAPPED.findall(maps))):
        # Its own root: the path is of its mount namespace.
        own = time_file.find({}, f"/proc/{pid}/root{text}")
        if not own:
            return None  # it has one that this user cannot see
        files += own
    return files


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino
