"""Clients of a multi-process server (MPS) on a simulated GPU: side by side, without slices."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.machine import Sim
from tests.support.virtual_world import run_together

from .test_time_sharing import STALL_US, begin, start, together_us, took_us


@pytest.fixture
def mps(sim: Sim) -> Sim:
    """A machine with such a server."""
    return sim.with_env(MPS=1)


def test_small_kernels_of_clients_run_at_the_same_time(mps: Sim, tmp_path: Path) -> None:
    commands = [("time_slices", "deep", "20", "100"), ("time_slices", "waits", "1300", "100")]

    deep, waits = run_together(mps, tmp_path, commands, preload=False)

    assert deep.facts == {"on_us": 0, "away_us": 0, "percent": pytest.approx(100)}
    # Launching the kernel after the event is all that may add to it.
    assert waits.facts["events_us"] == pytest.approx(1_300, abs=0.1)
    assert waits.facts["host_us"] < 1_310


def test_kernels_that_fill_the_gpu_follow_each_other(mps: Sim, tmp_path: Path) -> None:
    # A kernel that fits beside nothing waits for the one that runs, and goes first then.
    took = together_us(mps, tmp_path, (100, 1_000, 0), (50, 3_000, 0))

    assert took[1] == pytest.approx(50 * 4_000, abs=4_000)
    assert took[0] == pytest.approx(50 * 4_000 + 50 * 1_000, abs=4_000)


def test_a_long_kernel_of_one_client_is_waited_for_to_its_end(mps: Sim, tmp_path: Path) -> None:
    _, took = together_us(mps, tmp_path, (1, 100_000, 0), (1, 10, 20_000))

    # The event in front of its kernel does not wait: 80 ms are left of the other one, less what
    # that one took to begin.
    assert took == pytest.approx(80_000, abs=200)


def test_a_process_alone_is_the_same_under_mps(mps: Sim, sim: Sim, tmp_path: Path) -> None:
    tenant = (20, 1_000, 0)

    assert together_us(mps, tmp_path, tenant) == together_us(sim, tmp_path, tenant)


def test_a_killed_client_makes_room(mps: Sim) -> None:
    victim = start(mps, 36, 100_000_000)
    survivor = start(mps, 10, 10_000)
    begin(victim)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "launched\n"

    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    begin(survivor)

    assert took_us(survivor) < 100_000 + STALL_US
