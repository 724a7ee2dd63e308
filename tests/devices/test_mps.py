"""Clients of a multi-process server (MPS), imitated by what NVML shows of them.

Under MPS the process list has the server instead of its clients (NVIDIA's documents): here each
client is listed under one number that is nobody's. Their kernels still take turns: kernels that run
at the same time are GPUFENCE_SIM_MPS (tests/sim/test_time_mps.py). The server's own limits stay the
driver's (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gputime.test_matrix import limited
from tests.support.machine import Sim
from tests.support.virtual_world import run_together

SERVER = 4_111_222
PERCENT = 30
SLICE_US = 2_091  # for which a simulated GPU belongs to one process


@pytest.fixture
def server(sim: Sim) -> Sim:
    """A machine whose processes are all listed as the server."""
    return sim.with_env(PID=SERVER)


def test_what_a_client_takes_is_measured_around_its_calls(
    server: Sim, sim: Sim, tmp_path: Path
) -> None:
    facts = []
    for name, machine in (("client", server), ("plain", sim)):
        state = tmp_path / name
        state.mkdir()
        env = {"GPUFENCE_MEMORY_LIMIT": "2g", "GPUFENCE_STATE_DIR": str(state)}
        done = machine.run("memory_room", preload=True, env=env)
        assert done.stderr == ""
        facts.append(done.facts)

    assert facts[0] == facts[1]


def test_clients_of_a_container_share_its_core_limit(server: Sim, tmp_path: Path) -> None:
    commands = [("cores_run", "cuLaunchKernel", "steady", SLICE_US, 1_500)] * 2

    done = run_together(server, tmp_path, commands, env=limited(tmp_path, PERCENT))

    assert [each.stderr for each in done] == ["", ""]
    # The GPU is lost for 0.155 ms between two processes, every 2.1 ms at most: theirs as well.
    assert 0.9 * PERCENT <= sum(each.facts["share"] for each in done) <= PERCENT + 1.5
