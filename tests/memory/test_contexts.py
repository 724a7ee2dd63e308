"""What a container pays for contexts, and that their end gives everything back exactly once.

Every figure is what still fits below a limit of 4 GiB, in MiB, found by filling it. An empty
context of the simulated driver takes 526 MiB.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.machine import Finished, Sim

LIMIT = 4096
CONTEXT = 526
ROOM = LIMIT - CONTEXT
GIB = 1024


def limited(tmp_path: Path, limit: str = "4g", **more: str) -> dict[str, str]:
    """The environment of one container's processes."""
    return {
        "GPUFENCE_MEMORY_LIMIT": limit,
        "GPUFENCE_STATE_DIR": str(tmp_path / "state"),
        "GPUFENCE_CONTAINER": "test",
        **more,
    }


def finished(sim: Sim, tmp_path: Path, case: str, limit: str = "4g", **more: str) -> Finished:
    """Run one case of the program in the container."""
    return sim.run("memory_contexts", case, preload=True, env=limited(tmp_path, limit, **more))


def facts(sim: Sim, tmp_path: Path, case: str, limit: str = "4g", **more: str) -> dict[str, int]:
    """What a case prints that has nothing to say on stderr."""
    done = finished(sim, tmp_path, case, limit, **more)
    assert done.stderr == ""
    answer: dict[str, int] = done.facts
    return answer


def hold(sim: Sim, tmp_path: Path) -> subprocess.Popen[str]:
    """A process of the container with a context and 1 GiB, until it is told to end."""
    process = sim.spawn("memory_contexts", "hold", preload=True, env=limited(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


# What each case of the program must find.
EXPECTED = {
    "one": {"room": ROOM, "listed": CONTEXT},
    # Each context is paid until it is destroyed.
    "two": {"both": ROOM - CONTEXT, "one": ROOM},
    # What was allocated in a context ends with it, and only once.
    "contents": {
        "both": ROOM - CONTEXT - GIB,
        "second": ROOM,
        "second with 1 GiB": ROOM - GIB,
        "third": ROOM,
    },
    # So do the pieces that share chunks, and no other context's.
    "pieces": {"both": ROOM - CONTEXT - 12, "second": ROOM - 6, "third": ROOM},
    # A primary context lives as long as somebody retains it.
    "primary": {
        "retained": ROOM,
        "retained twice": ROOM,
        "released once": ROOM - GIB,
        "released twice": ROOM,
    },
    # A reset releases everything at once.
    "reset": {"room": ROOM},
    # A handle that is dealt again brings nothing of its former context along.
    "behind": {"same handle": 1, "free": ROOM, "room": ROOM, "at the end": ROOM},
    # A context ends with the last detachment.
    "attached": {"detached once": ROOM - CONTEXT - GIB, "detached twice": ROOM},
    # A green context pays for the primary that it brings to life.
    "green": {"green": ROOM - GIB, "destroyed": ROOM},
}


# Without a context all of them are told that there is none.
NO_CONTEXT = {
    **dict.fromkeys(("linear", "piece", "pitch", "managed", "array", "small array"), 201),
    "kept": 0,
}
# A process that made one context is not asked for the current one; these have more, or none.
CURRENT = {
    "beside primary": {"both": ROOM - CONTEXT - 2 * GIB - 6, "primary": ROOM - GIB, "anew": ROOM},
    "beside unseen": {"more": GIB},
    "green beside primary": {"green": ROOM - 2 * GIB, "destroyed": ROOM - GIB},
    "primary beside green": {"green": ROOM - 2 * GIB, "destroyed": ROOM - GIB},
    "no context": NO_CONTEXT,
    "no context, full": NO_CONTEXT,
}


@pytest.mark.parametrize("case", CURRENT)
def test_memory_is_charged_to_the_context_that_is_current(
    sim: Sim, tmp_path: Path, case: str
) -> None:
    assert facts(sim, tmp_path, case) == CURRENT[case]


@pytest.mark.parametrize("case", EXPECTED)
def test_contexts_are_paid_once_while_they_live(sim: Sim, tmp_path: Path, case: str) -> None:
    assert facts(sim, tmp_path, case) == EXPECTED[case]


@pytest.mark.parametrize("case", [case for case in EXPECTED if case != "one"])
@pytest.mark.parametrize(
    "faults",
    [
        "nvmlDeviceGetComputeRunningProcesses_v3@*=3",
        "nvmlInit_v2@*=9;nvmlInitWithFlags@*=9",
    ],
    ids=["no process list", "no NVML"],
)
def test_without_a_process_list_free_memory_tells(
    sim: Sim, tmp_path: Path, faults: str, case: str
) -> None:
    assert facts(sim, tmp_path, case, GPUFENCE_SIM_FAULTS=faults) == EXPECTED[case]


REFUSED = {
    "v1": 2,
    "v2": 2,
    "v3": 2,
    "v4": 2,
    "primary": 2,
    "primary active": 0,
    "untouched": 1,
    "wrong device": 101,
    "null": 1,
    "listed": 0,
}


@pytest.mark.parametrize(
    "faults",
    ["", "nvmlDeviceGetComputeRunningProcesses_v3@*=3"],
    ids=["process list", "no process list"],
)
def test_physical_memory_is_no_part_of_the_context_made_beside_it(
    sim: Sim, tmp_path: Path, faults: str
) -> None:
    """It needs none, and nobody lists a process without one."""
    more = {"GPUFENCE_SIM_FAULTS": faults} if faults else {}

    found = facts(sim, tmp_path, "physical", **more)

    assert found == {"first": ROOM - 64, "second": ROOM - 64, "released": ROOM}


def test_context_that_does_not_fit_is_refused_and_leaves_nothing(sim: Sim, tmp_path: Path) -> None:
    # Nobody has measured a context in this container yet: it is made, measured and undone.
    done = finished(sim, tmp_path, "refused", limit="500m")

    assert done.facts == REFUSED
    assert done.stderr.startswith(
        f"gpufence: the memory limit of device 0 is 500 MiB, less than a context takes "
        f"({CONTEXT} MiB). Raise the limit\n"
    )


def test_a_limit_without_its_unit_is_named(sim: Sim, tmp_path: Path) -> None:
    done = finished(sim, tmp_path, "refused", limit="4")

    assert done.facts == REFUSED
    assert "is 4 bytes, less than a context takes" in done.stderr
    assert "A limit without a unit is in bytes: write 4GiB for 4 GiB" in done.stderr


def test_context_of_known_cost_is_refused_before_the_driver_is_asked(
    sim: Sim, tmp_path: Path
) -> None:
    facts(sim, tmp_path, "one")
    log = tmp_path / "calls"

    done = finished(sim, tmp_path, "refused", limit="500m", GPUFENCE_SIM_LOG=str(log))

    assert done.facts == REFUSED
    calls = log.read_text(encoding="utf-8").split()
    assert calls.count("cuCtxCreate") == 0
    assert calls.count("cuDevicePrimaryCtxRetain") == 0


def test_process_that_ends_gives_its_context_back(sim: Sim, tmp_path: Path) -> None:
    holder = hold(sim, tmp_path)
    beside = facts(sim, tmp_path, "one")
    holder.communicate("end\n", timeout=30)

    assert beside == {"room": ROOM - CONTEXT - GIB, "listed": 2 * CONTEXT + GIB}
    assert facts(sim, tmp_path, "one")["room"] == ROOM


def test_killed_process_gives_its_context_back(sim: Sim, tmp_path: Path) -> None:
    holder = hold(sim, tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate(timeout=30)

    assert facts(sim, tmp_path, "one")["room"] == ROOM


def test_processes_that_start_together_never_pass_the_limit(sim: Sim, tmp_path: Path) -> None:
    # Four contexts of 526 MiB do not fit into 2 GiB. Nobody knows their cost at first.
    env = limited(tmp_path, "2g")
    starters = [
        sim.spawn("memory_contexts", "refused", preload=True, env=env) for _ in range(2)
    ] + [sim.spawn("memory_contexts", "two", preload=True, env=env) for _ in range(2)]

    for starter in starters:
        starter.communicate(timeout=60)

    assert facts(sim, tmp_path, "one", limit="2g")["room"] == 2048 - CONTEXT


def test_in_a_foreign_pid_namespace_a_neighbour_is_not_taken_for_us(
    sim: Sim, tmp_path: Path
) -> None:
    unshare = ["unshare", "-p", "-f"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make a pid namespace")
    # A neighbour in another container. Both have the pid 1, each in a namespace of its own.
    program = str(sim.build / "tests" / "memory_contexts")
    command = ["/usr/bin/env", *unshare, program]
    neighbour = sim.spawn(command[0], *command[1:], "hold")
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "held\n"

    done = sim.run(command[0], *command[1:], "contents", preload=True, env=limited(tmp_path))

    neighbour.communicate("end\n", timeout=30)
    assert done.facts == EXPECTED["contents"]
