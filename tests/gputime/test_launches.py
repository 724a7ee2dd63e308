"""The core limit over the simulated driver, one container, by real clocks.

Nothing that streams, contexts, captures or processes do makes it hang or leak. How exactly shares
are held is shown in virtual time (test_core_matrix) and on a GPU (tests/gpu/part_cores.py): here a
busy machine wakes a held launch late, which can only lower a share.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.machine import Finished, Sim
from tests.support.virtual_world import run_together

POINTS = 3.0  # the burst of 10 ms in a run of 600, and a kernel more or less
TRIES = 8
RUN_MS = 600
LONG_MS = 50  # what test programs call a long kernel
TENTH = 10


def limited(folder: Path, percent: int, **more: str) -> dict[str, str]:
    """The variables of a container with a core limit and a region of its own."""
    return {
        "GPUFENCE_CORE_LIMIT": str(percent),
        "GPUFENCE_STATE_DIR": str(folder),
        "GPUFENCE_CONTAINER": "cores",
        **more,
    }


def share(sim: Sim, folder: Path, percent: int, way: str, kernel_us: int) -> float:
    """The share that one run had."""
    words = ("cores_run", way, "steady", kernel_us, RUN_MS)
    done = sim.run(*words, preload=True, env=limited(folder, percent))
    return float(done.facts["share"])


def edge(sim: Sim, folder: Path, case: str, **more: str) -> Finished:
    """One of the cases of cores_edges, at a tenth of the GPU."""
    env = limited(folder, TENTH, **more)
    return sim.run("cores_edges", case, preload=True, env=env, timeout=30)


def assert_held(sim: Sim, folder: Path, percent: int, way: str, kernel_us: int) -> None:
    """No run above the limit, and one at half of it at least.

    Where other tests take the processor away, a program launches too late to use its share: less
    than that would be a limiter that holds too much.
    """
    shares = []
    for _ in range(TRIES):
        shares.append(share(sim, folder, percent, way, kernel_us))
        assert shares[-1] <= percent + POINTS, shares
        if shares[-1] >= percent / 2:
            return
    pytest.fail(f"never near {percent} %: {shares}")


def test_the_share_is_held_by_real_clocks_too(sim: Sim, tmp_path: Path) -> None:
    assert_held(sim, tmp_path, 30, "cuLaunchKernel", 500)


def test_a_capture_is_neither_held_nor_marked(sim: Sim, tmp_path: Path) -> None:
    facts = edge(sim, tmp_path, "capture").facts

    assert (facts["code"], facts["nodes"]) == (0, 200)
    assert facts["us"] < 200 * LONG_MS * 1000  # ten seconds of kernels: they did not run


def assert_paid_for(facts: dict[str, float]) -> None:
    """The next launch waited until the kernel before it was paid for."""
    credit_ms = 110  # what an idle tenth saves, and a kernel of a millisecond that nobody saw begin
    assert facts["code"] == 0
    assert facts["us"] >= (LONG_MS * 100 / TENTH - credit_ms) * 1000


@pytest.mark.parametrize("what", ["stream", "context"])
def test_what_ran_when_its_stream_or_context_ended_is_paid_for(
    sim: Sim, tmp_path: Path, what: str
) -> None:
    assert_paid_for(edge(sim, tmp_path, what).facts)


@pytest.mark.parametrize("how", ["block", "late"])
def test_a_launch_that_its_thread_was_late_with_is_paid_for(
    sim: Sim, tmp_path: Path, how: str
) -> None:
    """The watcher sees the stream idle before the driver has the kernel, or before we know."""
    late = sim.with_env(FAULTS=f"cuLaunchKernel@1={how}:20")

    (done,) = run_together(
        late, tmp_path, [("cores_edges", "stream")], env=limited(tmp_path, TENTH)
    )

    assert_paid_for(done.facts)


def test_a_launch_is_counted_in_its_own_stream_though_that_lost_its_place(
    sim: Sim, tmp_path: Path
) -> None:
    """260 ms of kernels are owed for; the launch of the longer one was kept by the driver."""
    kept = sim.with_env(FAULTS="cuLaunchKernel@9=block:50", STREAM_BYTES=0)

    (done,) = run_together(kept, tmp_path, [("cores_places",)], env=limited(tmp_path, TENTH))

    assert done.facts["us"] >= 2_000_000


def test_a_launch_that_returns_while_its_kernel_runs_is_no_pause(sim: Sim, tmp_path: Path) -> None:
    """Each a millisecond late, half of its kernel's time: what a launch takes is no measure."""
    late = sim.with_env(FAULTS="cuLaunchKernel@*=late:1")
    command = ("cores_run", "cuLaunchKernel", "sync", 2_000, 1_000)

    (done,) = run_together(late, tmp_path, [command], env=limited(tmp_path, 30))

    assert 30 - POINTS <= done.facts["share"] <= 30 + POINTS


def test_a_reset_device_can_be_used_again(sim: Sim, tmp_path: Path) -> None:
    assert edge(sim, tmp_path, "reset").facts["code"] == 0


def test_waiting_in_a_stream_costs_nothing(sim: Sim, tmp_path: Path) -> None:
    # At a fifth, where the second kernel is queued without a hold. All is paid for long before the
    # end; a tenth of a second of waiting would cost half a second.
    env = limited(tmp_path, 20)
    done = sim.run("cores_edges", "waits", preload=True, env=env)

    assert done.facts["us"] < 300_000


def test_a_launch_from_a_host_function_ends_as_it_does_bare(sim: Sim, tmp_path: Path) -> None:
    bare = sim.run("cores_edges", "callback").facts

    assert edge(sim, tmp_path, "callback").facts == bare


@pytest.mark.parametrize("what", ["exit", "fork"])
def test_a_process_ends_while_its_launches_are_held(sim: Sim, tmp_path: Path, what: str) -> None:
    done = edge(sim, tmp_path, what)

    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_core_limit_there_is_no_thread_and_no_call_more(sim: Sim, tmp_path: Path) -> None:
    def calls(name: str, preload: bool, env: dict[str, str]) -> tuple[float, list[str]]:
        log = tmp_path / name
        done = sim.with_env(LOG=str(log)).run("cores_edges", "threads", preload=preload, env=env)
        lines = log.read_text(encoding="utf-8").splitlines()
        return float(done.facts["threads"]), [line.split()[0] for line in lines]

    bare_threads, bare = calls("bare", False, {})
    free_threads, free = calls("free", True, {})
    held_threads, held = calls("held", True, limited(tmp_path, TENTH))

    assert (free_threads, free) == (bare_threads, bare)
    assert held_threads == bare_threads + 1
    assert "cuEventRecord" in held
    assert "cuEventRecord" not in bare


def test_where_events_are_refused_the_limit_is_held_by_waiting(sim: Sim, tmp_path: Path) -> None:
    blind = sim.with_env(FAULTS="cuEventCreate@*=801")
    words = ("cores_run", "cuLaunchKernel", "steady", 5_000, RUN_MS)
    done = blind.run(*words, preload=True, env=limited(tmp_path, 30))

    assert float(done.facts["share"]) <= 30 + POINTS
    assert "cannot be measured by events" in done.stderr
    assert done.stderr.count("\n") <= 3


FULL = 1_020  # operations behind a gate: then the queue is full, with markers even earlier


@pytest.mark.parametrize("way", ["none", "event", "sync", "copy", "destroy", "release"])
@pytest.mark.parametrize("fill", ["launch", "copy", "set"])
def test_a_full_queue_keeps_nobody_from_opening_what_it_waits_for(
    sim: Sim, tmp_path: Path, fill: str, way: str
) -> None:
    (done,) = run_together(
        sim, tmp_path, [("cores_gate", fill, way)], env=limited(tmp_path, 99), timeout=20
    )

    assert done.facts["done"] == 1
    assert FULL - 120 <= done.facts["put"] <= FULL


WAITING = ("query", "launch", "record", "free")  # while a thread waits for room (H200)


@pytest.mark.parametrize("fill", ["record", "set"])
def test_only_what_the_driver_keeps_waiting_waits_for_room_in_another_stream(
    sim: Sim, tmp_path: Path, fill: str
) -> None:
    done = sim.run("full_stream", fill, preload=True, env=limited(tmp_path, 99))

    facts = done.facts
    assert FULL - 120 <= facts.pop("put") <= FULL
    assert facts.pop("done") == 1
    assert facts == {name: -1 if name in WAITING else 0 for name in facts}
