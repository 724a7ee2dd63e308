"""Several processes on one simulated GPU: turns, what they cost, and what a killed one leaves.

Durations are those that the processes' own events report, in simulated time; where nobody has to be
killed, stopped or told anything, that is virtual.
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Sim
from tests.support.virtual_world import run_together

SLICE_US = 2_091
SWITCH_US = 155
STALL_US = 500_000  # what a busy machine may take a process off its processor for


def start(sim: Sim, kernels: int, kernel_us: int) -> subprocess.Popen[str]:
    """A tenant that is ready to begin."""
    tenant = sim.spawn("time_share", kernels, kernel_us)
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "ready\n"
    return tenant


def begin(*tenants: subprocess.Popen[str]) -> None:
    """Let them begin, one after the other without waiting."""
    for tenant in tenants:
        assert tenant.stdin is not None
        tenant.stdin.write("go\n")
        tenant.stdin.flush()


def took_us(tenant: subprocess.Popen[str]) -> float:
    """The GPU's time from a tenant's first to its last kernel."""
    assert tenant.stdout is not None
    out = tenant.stdout.read()  # communicate() would lose what was read beyond a line
    _, err = tenant.communicate(timeout=60)
    assert tenant.returncode == 0, err
    facts: Any = json.loads(out.splitlines()[-1])
    return float(facts["us"])


def together_us(sim: Sim, folder: Path, *tenants: tuple[int, int, int]) -> list[float]:
    """The same of tenants in virtual time: kernels, their length and how much later each begins."""
    commands = [("time_share", *tenant) for tenant in tenants]
    finished = run_together(sim, folder, commands, preload=False)
    return [float(done.facts["us"]) for done in finished]


@pytest.mark.parametrize("kernel_us", [100, 1_000, 50_000])
def test_a_lone_process_loses_nothing(sim: Sim, tmp_path: Path, kernel_us: int) -> None:
    (took,) = together_us(sim, tmp_path, (200_000 // kernel_us, kernel_us, 0))

    # Launching the first kernel after the first event is all that may add to it.
    assert 200_000 <= took < 200_000 + 100


@pytest.mark.parametrize("kernel_us", [100, 2_000, 100_000])
def test_two_busy_processes_get_half_each_and_pay_for_switching(
    sim: Sim, tmp_path: Path, kernel_us: int
) -> None:
    tenant = (400_000 // kernel_us, kernel_us, 0)
    took = together_us(sim, tmp_path, tenant, tenant)

    # Each slice is followed by one of the other and two switches.
    alternating = 400_000 * 2 * (SLICE_US + SWITCH_US) / SLICE_US
    turns = 2 * (SLICE_US + SWITCH_US)
    assert took == pytest.approx([alternating] * 2, abs=2 * turns)


def test_events_around_a_small_kernel_do_not_see_the_busy_neighbour(
    sim: Sim, tmp_path: Path
) -> None:
    _, took = together_us(sim, tmp_path, (10, 100_000, 0), (1, 10, 20_000))

    # The first event, too, comes to pass when the process gets the GPU: test_time_slices.py.
    assert took == pytest.approx(10, abs=0.001)


def test_a_killed_process_blocks_nobody(sim: Sim) -> None:
    # It leaves an hour of work queued; of that at most the turns that it had reserved remain.
    victim = start(sim, 36, 100_000_000)
    survivor = start(sim, 10, 10_000)
    begin(victim)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "launched\n"

    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    begin(survivor)

    assert took_us(survivor) < 100_000 + 2 * (SLICE_US + SWITCH_US) + STALL_US


def test_a_stopped_process_keeps_its_gpu_running(sim: Sim) -> None:
    # The host is stopped, the GPU is not: what was queued is done when the host comes back.
    tenant = start(sim, 10, 10_000)
    begin(tenant)
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "launched\n"
    tenant.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        tenant.wait(timeout=2 * STALL_US / 1e6)
    tenant.send_signal(signal.SIGCONT)

    assert took_us(tenant) < 100_000 + STALL_US


def test_speed_changes_the_clock_and_not_the_durations(sim: Sim) -> None:
    # Ten simulated seconds in a tenth of a real one.
    fast = sim.with_env(SPEED=100)
    tenant = start(fast, 10, 1_000_000)
    begin(tenant)

    took = took_us(tenant)

    assert 10_000_000 <= took < 10_000_000 + 100 * STALL_US


def test_an_event_is_waited_for_in_another_process(sim: Sim) -> None:
    owner = sim.spawn("time_ipc_event", "owner")
    assert owner.stdout is not None
    assert owner.stdin is not None
    waiter = sim.spawn("time_ipc_event", owner.stdout.readline().strip())
    assert waiter.stdout is not None
    assert waiter.stdout.readline() == "asked\n"
    owner.stdin.write("go\n")
    owner.stdin.flush()

    seen = json.loads(waiter.stdout.read())

    owner.communicate("end\n", timeout=60)
    waiter.communicate(timeout=60)
    assert seen == {
        "before": 600,
        "stream before": 600,
        "after": 0,
        "synchronise": 0,
        "handle of a plain event": 400,
        "invented handle": 400,
    }
