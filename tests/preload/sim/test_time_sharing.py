"""Several processes on one simulated GPU: turns, what they cost, and what a killed one leaves.

Durations are those that the processes' own events report, in simulated time.
"""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from ..conftest import Sim  # noqa: TID252 - the fixtures are one folder up

SLICE_US = 2_000
SWITCH_US = 220


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
    out, err = tenant.communicate(timeout=60)
    assert tenant.returncode == 0, err
    facts: Any = json.loads(out.splitlines()[-1])
    return float(facts["us"])


@pytest.mark.parametrize("kernel_us", [100, 1_000, 50_000])
def test_a_lone_process_loses_nothing(sim: Sim, kernel_us: int) -> None:
    kernels = 200_000 // kernel_us
    tenant = start(sim, kernels, kernel_us)
    begin(tenant)

    took = took_us(tenant)

    # Launching the first kernel after the first event is all that may add to it.
    assert 200_000 <= took < 200_000 + 20_000


@pytest.mark.parametrize("kernel_us", [100, 2_000, 100_000])
def test_two_busy_processes_get_half_each_and_pay_for_switching(sim: Sim, kernel_us: int) -> None:
    kernels = 400_000 // kernel_us
    tenants = [start(sim, kernels, kernel_us) for _ in range(2)]
    begin(*tenants)

    took = [took_us(tenant) for tenant in tenants]

    # Each turn of 2 ms is followed by one of the other and two switches. What remains open is the
    # moment at which the second one begins, and turns that a process misses when the machine does
    # not let it run for milliseconds.
    alternating = 400_000 * 2 * (SLICE_US + SWITCH_US) / SLICE_US
    assert 0.97 * alternating <= max(took) <= 1.25 * alternating
    assert min(took) == pytest.approx(max(took), rel=0.25)


def test_small_kernels_beside_a_busy_neighbour_wait_for_its_turn_only(sim: Sim) -> None:
    busy = start(sim, 10, 100_000)
    small = start(sim, 1, 10)
    begin(busy)
    assert busy.stdout is not None
    assert busy.stdout.readline() == "launched\n"
    begin(small)

    took = took_us(small)

    # At worst a turn has just begun and the next one is reserved as well.
    assert took < 2 * (SLICE_US + SWITCH_US) + 10 + 2_000
    busy.kill()
    busy.communicate()


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

    assert took_us(survivor) < 100_000 + 2 * (SLICE_US + SWITCH_US) + 20_000


def test_a_stopped_process_keeps_its_gpu_running(sim: Sim) -> None:
    # The host is stopped, the GPU is not: what was queued is done when the host comes back.
    tenant = start(sim, 10, 10_000)
    begin(tenant)
    assert tenant.stdout is not None
    assert tenant.stdout.readline() == "launched\n"
    tenant.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        tenant.wait(timeout=0.5)
    tenant.send_signal(signal.SIGCONT)

    assert took_us(tenant) < 100_000 + 20_000


def test_speed_changes_the_clock_and_not_the_durations(sim: Sim) -> None:
    # Ten simulated seconds in a tenth of a real one.
    fast = sim.with_env(SPEED=100)
    tenant = start(fast, 10, 1_000_000)
    begin(tenant)

    took = took_us(tenant)

    assert 10_000_000 <= took < 10_000_000 + 100 * 20_000


def test_an_event_is_waited_for_in_another_process(sim: Sim) -> None:
    owner = sim.spawn("time_ipc_event", "owner")
    assert owner.stdout is not None
    handle = owner.stdout.readline().strip()

    facts = sim.run("time_ipc_event", handle).facts

    owner.communicate("end\n", timeout=60)
    assert facts == {
        "before": 600,
        "stream before": 600,
        "after": 0,
        "synchronise": 0,
        "handle of a plain event": 400,
        "invented handle": 400,
    }
