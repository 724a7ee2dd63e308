"""A limit belongs to a GPU, however CUDA numbers it in a process.

CUDA numbers devices after CUDA_VISIBLE_DEVICES, NVML all of the machine; only the UUID is the same.
Rooms are what still fits below the limit, in MiB, beside one context of 526 MiB.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Sim

CONTEXT = 526


@pytest.fixture
def board(sim: Sim) -> Sim:
    """A machine of three GPUs with 8 GiB each."""
    return sim.with_env(GPUS=3, MEMORY="8g")


def uuids(board: Sim) -> list[str]:
    """The machine's GPUs in the order that NVML numbers them."""
    return [device["uuid"] for device in board.run("device_identity").facts]


def rooms(board: Sim, tmp_path: Path, **env: str) -> list[tuple[str, int]]:
    """UUID and room of each device that the container's process sees."""
    container = {"GPUFENCE_STATE_DIR": str(tmp_path / "state"), "GPUFENCE_CONTAINER": "test"}
    done = board.run("device_identity", "room", preload=True, env={**container, **env})
    return [(device["uuid"], device["room"]) for device in done.facts]


@pytest.mark.parametrize("form", ["index", "uuid"])
def test_index_of_a_limit_counts_visible_devices(board: Sim, tmp_path: Path, form: str) -> None:
    names = uuids(board)
    visible = "2,0" if form == "index" else f"{names[2]},{names[0]}"

    found = rooms(
        board,
        tmp_path,
        CUDA_VISIBLE_DEVICES=visible,
        GPUFENCE_MEMORY_LIMIT_0="2g",
        GPUFENCE_MEMORY_LIMIT_1="3g",
    )

    assert found == [(names[2], 2048 - CONTEXT), (names[0], 3072 - CONTEXT)]


def test_uuid_of_a_limit_names_the_gpu_wherever_it_is_listed(board: Sim, tmp_path: Path) -> None:
    names = uuids(board)

    found = rooms(
        board,
        tmp_path,
        CUDA_VISIBLE_DEVICES="1,2",
        **{
            f"GPUFENCE_MEMORY_LIMIT_{names[0]}": "1g",
            f"GPUFENCE_MEMORY_LIMIT_{names[2]}": "2g",
        },
    )

    assert found == [(names[1], 8192 - CONTEXT), (names[2], 2048 - CONTEXT)]


@pytest.mark.parametrize(
    ("visible", "order"),
    [
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("1", [1]),
        ("{2},{0}", [2, 0]),
        ("{2:.12},1", [2, 1]),
        ("1,9,0", [1]),
        ("2,,0", [2]),
        ("0,-1,1", [0]),
        ("0,{0}", []),
        ("GPU-,0", []),
        ("-1", []),
        ("", []),
    ],
)
def test_a_program_without_cuda_numbers_gpus_as_cuda_does(
    board: Sim, tmp_path: Path, visible: str, order: list[int]
) -> None:
    names = uuids(board)
    env = {"CUDA_VISIBLE_DEVICES": visible.format(*names)}
    if order:
        shown = board.run("device_identity", env=env).facts
        assert [device["uuid"] for device in shown] == [names[i] for i in order]

    env |= {"GPUFENCE_STATE_DIR": str(tmp_path), "GPUFENCE_CONTAINER": "test"}
    env |= {"GPUFENCE_MEMORY_LIMIT_0": "2g", "GPUFENCE_MEMORY_LIMIT_1": "3g"}
    told = board.run("nvml_query", "devices", preload=True, env=env).facts

    expected = dict.fromkeys(names, 8) | dict(zip([names[i] for i in order], (2, 3), strict=False))
    assert {device["uuid"]: device["total"] >> 30 for device in told} == expected


def test_processes_that_number_gpus_differently_share_each_limit(
    board: Sim, tmp_path: Path
) -> None:
    names = uuids(board)
    container = {
        "GPUFENCE_STATE_DIR": str(tmp_path / "state"),
        "GPUFENCE_CONTAINER": "test",
        "GPUFENCE_MEMORY_LIMIT": "4g",
    }
    sibling = board.spawn(
        "device_identity", "hold", preload=True, env={**container, "CUDA_VISIBLE_DEVICES": "2"}
    )
    assert sibling.stdout is not None
    assert sibling.stdout.readline() == "held\n"

    found = rooms(board, tmp_path, CUDA_VISIBLE_DEVICES="1,2", GPUFENCE_MEMORY_LIMIT="4g")

    sibling.communicate("end\n", timeout=30)
    assert found == [
        (names[1], 4096 - CONTEXT),
        (names[2], 4096 - 2 * CONTEXT - 1024),
    ]


def test_neighbour_on_another_gpu_is_not_taken_for_our_use(board: Sim, tmp_path: Path) -> None:
    # Its GPU is NVML's number 0, as ours is CUDA's.
    names = uuids(board)
    neighbour = board.spawn("device_identity", "hold", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "held\n"

    found = rooms(board, tmp_path, CUDA_VISIBLE_DEVICES="1", GPUFENCE_MEMORY_LIMIT="4g")

    neighbour.communicate("end\n", timeout=30)
    assert found == [(names[1], 4096 - CONTEXT)]
