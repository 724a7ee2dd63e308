"""Who fits where: the rules of `gpufence.node.book`, to the byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gpufence.errors import ToolError
from gpufence.node import book, checkpoint
from gpufence.node.book import Grant, Wanted
from gpufence.node.gpus import Gpu

SMALL, LARGE = Gpu("GPU-a", 1000), Gpu("GPU-b", 3000)
OTHER = Grant("g0", "ns/other/main", {"gpu": ("g0",), "memory": ("m0",)}, ("GPU-a",), 400, 60)


def placed(
    wanted: Wanted, *others: Grant, policy: str = "spread", slots: int = 10
) -> tuple[tuple[str, ...], int]:
    return book.place([SMALL, LARGE], others, wanted, policy, slots)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Wanted(2, 600, 40), True),
        (Wanted(2, 601, 40), False),
        (Wanted(2, 600, 41), False),
        (Wanted(3, 1, 0), False),
        (Wanted(1, 3000, 100), True),
        (Wanted(1, 3001, 0), False),
    ],
)
def test_what_is_left_is_given_to_the_last_byte_and_no_further(wanted: Wanted, fits: bool) -> None:
    try:
        gpus, memory = placed(wanted, OTHER)
    except ToolError:
        gpus, memory = (), 0

    assert (len(gpus) == wanted.gpus, bool(memory)) == (fits, fits)


def test_a_gpu_takes_no_more_containers_than_it_has_slots() -> None:
    found = placed(Wanted(1, 100, 0), OTHER, policy="pack", slots=1)

    assert found == (("GPU-b",), 100)


def test_a_whole_gpu_is_one_that_nobody_else_has_a_part_of() -> None:
    assert placed(Wanted(1, 0, 0), OTHER, policy="pack") == (("GPU-b",), 3000)


def test_whole_gpus_of_different_sizes_have_the_smallest_ones_limit() -> None:
    assert placed(Wanted(2, 0, 0)) == (("GPU-b", "GPU-a"), 1000)


def test_those_are_over_whose_units_somebody_else_has() -> None:
    assert book.ended_by([OTHER], {"memory": ("m1", "m0")}) == ("g0",)
    assert book.ended_by([OTHER], {"memory": ("m1",), "gpu": ("m0",)}) == ()


@pytest.mark.parametrize("policy", ["spread", "pack"])
def test_however_containers_come_and_go_nothing_is_given_out_twice(policy: str) -> None:
    dice = random.Random(5)
    gpus = [SMALL, LARGE, Gpu("GPU-c", 1000)]
    grants: dict[str, Grant] = {}
    refused = 0
    for turn in range(2000):
        wanted = Wanted(dice.choice((1, 1, 2)), dice.randrange(0, 900), dice.choice((0, 25, 50)))
        try:
            chosen, memory = book.place(gpus, grants.values(), wanted, policy, 4)
        except ToolError:
            refused += 1
            grants.pop(dice.choice(sorted(grants)))
            continue
        key = f"g{turn}"
        grants[key] = Grant(key, key, {}, chosen, memory, wanted.cores)
        assert len(set(chosen)) == wanted.gpus
        assert book.overbooked(gpus, grants.values(), 4) == []

    assert 100 < refused < 1900


def test_more_than_there_is_would_be_noticed() -> None:
    assert len(book.overbooked([SMALL], [replace(OTHER, memory_bytes=1001)], 1)) == 1
    assert len(book.overbooked([SMALL], [replace(OTHER, cores=101)], 1)) == 1
    assert len(book.overbooked([SMALL], [OTHER], 0)) == 1
    assert book.overbooked([SMALL], [OTHER], 1) == []


def test_a_checkpoint_gives_back_what_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "grants.json"
    before = checkpoint.read(path)

    checkpoint.write(path, [OTHER])

    assert before == {}
    assert checkpoint.read(path) == {"g0": OTHER}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-5],
        lambda text: text.replace("400", "300"),
        lambda text: text.replace('"schema": 1', '"schema": 2'),
        lambda _: "",
        lambda _: "[]",
        lambda _: "{}",
        lambda _: "[" * 100_000,
        lambda _: '{"schema": 1, "check": 223132457, "grants": [{}]}',
        lambda _: "\udcff",
    ],
)
def test_a_damaged_checkpoint_is_refused_and_kept(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    path = tmp_path / "grants.json"
    checkpoint.write(path, [OTHER])
    path.write_text(damage(path.read_text()), errors="surrogateescape")
    before = path.read_bytes()

    with pytest.raises(ToolError, match="refused"):
        checkpoint.read(path)

    assert path.read_bytes() == before
