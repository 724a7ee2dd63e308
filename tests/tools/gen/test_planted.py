"""Nothing that a header changes goes unseen: 200 changes planted into the newest headers."""

from __future__ import annotations

import collections
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from gen import changes, diff, headers, join, kinds, surface
from gen.changes import Change
from gen.facts import HeaderFacts, HeaderSet
from gen.ir import ENFORCED_KINDS
from gen.naming import split

from . import planted

API = Path(__file__).resolve().parents[3] / "lib" / "api"
# NVML's enforced functions take no unions and hardly an enumerator.
COUNTS = {
    "cuda": {
        **{"name": 18, "parameter": 28, "enumerator": 34},
        **{"flag": 14, "union member": 33, "layout": 19},
    },
    "nvml": {"name": 16, "parameter": 6, "flag": 18, "layout": 14},
}
SEED = 20260


def read(item: HeaderSet, library: str) -> HeaderFacts:
    touched = join.load_inputs(API, library).touched
    return headers.read(item, library, touched, full=False)


def changes_of(library: str, old: HeaderSet, new: HeaderSet) -> tuple[Change, ...]:
    found = surface.build([read(old, library), read(new, library)])
    return changes.between(found, old.version, new.version, diff.judged(API))


def is_enforced(function: str) -> bool:
    return kinds.classify(split(function).base)[0] in ENFORCED_KINDS


def sown(library: str, newest: HeaderSet) -> tuple[HeaderSet, list[planted.Plant]]:
    known, judged = diff.load(API, library), diff.judged(API)
    file = headers.HEADERS[library][0]
    functions = {fact.key.owner for fact in known.facts if fact.key.sort == surface.FUNCTION}
    garden = planted.Garden(
        newest.files[file].decode(),
        frozenset(fact.key.owner for fact in known.facts if fact.via),
        tuple(sorted(filter(is_enforced, functions))),
        lambda name: is_enforced(name) and not judged.handled(name),
        random.Random(SEED),
    )
    planted.plant(garden, COUNTS[library])
    return planted.replanted(newest, file, garden), garden.plants


@pytest.mark.parametrize("library", join.LIBRARIES)
def test_every_planted_change_is_a_hole(library: str, pinned: Sequence[HeaderSet]) -> None:
    changed, plants = sown(library, pinned[-1])

    holes = [c for c in changes_of(library, pinned[-1], changed) if c.is_hole]

    shown = "\n".join(f"{hole.name} {hole.new}" for hole in holes)
    assert [plant for plant in plants if plant.mark not in shown] == []
    assert len({plant.mark for plant in plants}) == sum(COUNTS[library].values())


def test_the_planted_changes_are_200_of_every_sort(pinned: Sequence[HeaderSet]) -> None:
    plants = [plant for library in COUNTS for plant in sown(library, pinned[-1])[1]]

    sorts = collections.Counter(plant.sort for plant in plants)

    assert len(plants) == 200
    assert len(sorts) == 6
    assert min(sorts.values()) >= 30


@pytest.mark.parametrize("library", join.LIBRARIES)
def test_unchanged_headers_change_nothing(library: str, pinned: Sequence[HeaderSet]) -> None:
    again = HeaderSet(planted.VERSION, pinned[-1].files)

    assert changes_of(library, pinned[-1], again) == ()


def test_members_that_a_planted_one_moved_are_holes_too(pinned: Sequence[HeaderSet]) -> None:
    changed, _ = sown("cuda", pinned[-1])

    holes = [c for c in changes_of("cuda", pinned[-1], changed) if c.is_hole and c.old]

    moved = [c for c in holes if c.key.sort == "record" and c.key.member != "."]
    assert [c for c in moved if c.old.partition(" at ")[0] == c.new.partition(" at ")[0]]
