"""What limits did is counted: refusals (tests/support/handles.py asserts each), held launches."""

from __future__ import annotations

from pathlib import Path

from gpufence.state import region, time_file

from tests.support.charges import MIB
from tests.support.handles import handles
from tests.support.machine import Sim


def test_what_a_process_was_refused_outlives_it(bare: Sim, state: Path) -> None:
    with handles(bare, state, "64m") as fence:
        for _ in range(3):
            fence.refused("alloc", 65 * MIB)
    with handles(bare, state, "64m") as fence:
        assert fence.refusals() == 3
        fence.does("alloc", 64 * MIB)
        assert fence.refusals() == 3

        (path,) = region.find({}, str(state))
        (device,) = region.read(path).devices
        assert (device.past.refusals, device.uses[0].activity.refusals) == (3, 0)


def test_held_launches_and_their_time_are_counted(sim: Sim, state: Path) -> None:
    env = {
        "GPUFENCE_CORE_LIMIT": "20",
        "GPUFENCE_STATE_DIR": str(state),
        "GPUFENCE_CONTAINER": "cores",
    }

    facts = sim.run("cores_run", "cuLaunchKernel", "steady", 2000, 600, preload=True, env=env).facts

    (device,) = region.read(*region.find({}, str(state))).devices
    ((tenant,),) = (
        each.tenants for each in time_file.read(*time_file.find({}, str(state))).devices
    )
    launches, gpu_ns = int(facts["launches"]), 2_000_000 * int(facts["launches"])
    # The first burst passes, then launches wait for one another's time.
    assert 0 < device.activity.launches_held <= launches
    # Held at most as long as it ran; nothing else waits here, so most of what is not GPU time is.
    assert 0.3 * facts["us"] * 1000 < device.activity.held_ns <= facts["us"] * 1000
    # Every kernel is charged once, but for the moments of some that nobody saw begin.
    assert 0.9 * gpu_ns <= tenant.charged_ns <= facts["us"] * 1000


def test_without_waiting_nothing_is_counted(sim: Sim, state: Path) -> None:
    env = {"GPUFENCE_CORE_LIMIT": "90", "GPUFENCE_STATE_DIR": str(state)}

    sim.run("cores_run", "cuLaunchKernel", "pauses", 500, 100, preload=True, env=env)

    (device,) = region.read(*region.find({}, str(state))).devices
    assert device.activity == region.Activity()
