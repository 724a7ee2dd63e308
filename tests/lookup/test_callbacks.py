"""What the driver calls back into is the program: it stays limited, and may leave by a jump.

Tools of NVIDIA's call a program back from inside of the driver's calls. Such a callback may
allocate or launch by itself, and may leave by siglongjmp or by an exception; the hooks that it goes
through then never return. The simulated driver calls back at the door of every call.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Sim

LIMIT = 2048
CONTEXT = 526
ROOM = LIMIT - CONTEXT
PIECE = 64
ROUNDS = 20
CHUNK = 2
POOL_BLOCK = 32


def limited(folder: Path, **env: str) -> dict[str, str]:
    return {
        "GPUFENCE_STATE_DIR": str(folder),
        "GPUFENCE_MEMORY_LIMIT": f"{LIMIT}m",
        "GPUFENCE_LOG_LEVEL": "error",
        **env,
    }


@pytest.mark.parametrize("call", ["cuMemAlloc_v2", "cuMemGetInfo_v2", "cuLaunchKernel"])
def test_a_callback_allocates_within_the_limit(sim: Sim, tmp_path: Path, call: str) -> None:
    done = sim.run("callbacks", "allocate", call, preload=True, env=limited(tmp_path))

    # The call that was under way had asked for its own piece before.
    under_way = PIECE if call == "cuMemAlloc_v2" else 0
    assert done.facts["granted"] == (ROOM - under_way) // PIECE * PIECE
    assert done.facts["room"] == ROOM - done.facts["granted"]
    assert done.stderr == ""


@pytest.mark.parametrize("way", ["jump", "throw"])
@pytest.mark.parametrize("call", ["cuMemAlloc_v2", "cuMemGetInfo_v2", "cuCtxSynchronize"])
def test_a_jump_out_of_a_callback_leaves_the_limit_as_it_was(
    sim: Sim, tmp_path: Path, call: str, way: str
) -> None:
    done = sim.run("callbacks", way, call, preload=True, env=limited(tmp_path))

    facts = {"calls": ROUNDS, "granted": 0, "room": ROOM, "other room": ROOM}
    assert done.facts == facts
    assert done.stderr == ""


@pytest.mark.parametrize("way", ["jump", "throw"])
def test_what_a_jump_kept_from_being_freed_stays_charged(
    sim: Sim, tmp_path: Path, way: str
) -> None:
    done = sim.run("callbacks", way, "cuMemFree_v2", preload=True, env=limited(tmp_path))

    assert done.facts["room"] == ROOM - ROUNDS * PIECE
    assert done.facts["other room"] == ROOM - ROUNDS * PIECE


@pytest.mark.parametrize(
    ("call", "most_lost"),
    [
        ("cuMemAlloc_v2", CHUNK),
        ("cuMemAllocPitch_v2", CHUNK),
        ("cuMemAllocManaged", CHUNK),
        ("cuArrayCreate_v2", CHUNK),
        ("cuMemAllocAsync", POOL_BLOCK),
    ],
)
def test_what_a_jump_lost_comes_back_with_the_processs_end(
    sim: Sim, tmp_path: Path, call: str, most_lost: int
) -> None:
    done = sim.run("callbacks", "lose", call, preload=True, env=limited(tmp_path))

    assert done.stderr == ""
    assert done.facts["calls"] == ROUNDS
    assert 0 <= ROOM - done.facts["room"] <= ROUNDS * most_lost
    assert done.facts["held"] <= LIMIT
    assert done.facts["later"] == ROOM


@pytest.mark.parametrize(
    "call", ["cuEventCreate", "cuEventQuery", "cuEventRecord", "cuCtxPushCurrent_v2"]
)
def test_a_callback_launches_while_a_stream_is_marked(sim: Sim, tmp_path: Path, call: str) -> None:
    env = limited(tmp_path, GPUFENCE_CORE_LIMIT="30")

    done = sim.run("callbacks", "launch", call, preload=True, env=env)

    assert done.facts["granted"] == done.facts["calls"]
    assert done.stderr == ""
