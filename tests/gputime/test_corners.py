"""Programs that would get round the core limit, or suffer from it, in virtual time.

Each is a case in which what is usual misled the limiter (tests/gputime/cores_corners.cpp).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gpufence.state import region

from tests.support.gpus import H200
from tests.support.machine import Sim
from tests.support.virtual_world import Words, run_together

POINTS = 1.0
SAVED_POINTS = 5.0  # what who was idle may use at once, in a second
UNSEEN_POINTS = 1.0  # what is between two that a marker saw
SLOW_BUS = 500  # 10^6 bytes a second
NOT_READY = 600
REFUSED = 801  # as events may be under a profiler


def limited(folder: Path, percent: int) -> dict[str, str]:
    """The variables of a container with a core limit and a region of its own."""
    return {
        "GPUFENCE_CORE_LIMIT": str(percent),
        "GPUFENCE_STATE_DIR": str(folder),
        "GPUFENCE_CONTAINER": "corners",
    }


def activity(folder: Path) -> region.Activity:
    """What the container's file says of the one device."""
    (device,) = region.read(*region.find({}, str(folder))).devices
    return device.activity


def corner(sim: Sim, folder: Path, percent: int, *words: str | int) -> float:
    """The one figure that a case tells."""
    command: Words = ("cores_corners", *words)
    (done,) = run_together(sim, folder, [command], env=limited(folder, percent))
    (figure,) = done.facts.values()
    return float(figure)


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_kernels_of_seconds_are_held(sim: Sim, tmp_path: Path, streams: int) -> None:
    """A minute holds twenty of three seconds; some go before it is known how long they are."""
    assert corner(sim, tmp_path, 10, "long", streams) <= 5 + streams


def test_a_stream_that_waits_for_ever_lets_no_launch_of_another_go(
    sim: Sim, tmp_path: Path
) -> None:
    """In a minute six of a second, and two that go before it is known how long they are."""
    assert corner(sim, tmp_path, 10, "blocked") <= 6 + 2


def test_what_goes_behind_a_kernel_without_an_end_goes_ever_later(sim: Sim, tmp_path: Path) -> None:
    """It may wait for each: behind 2, 6, 14 and 30 s one goes, and another one at its end."""
    (done,) = run_together(sim, tmp_path, [("cores_edges", "endless")], env=limited(tmp_path, 10))

    # Before anything was held one went.
    assert 5 <= done.facts["launches"] <= 7


def test_what_exit_handlers_launch_is_held(sim: Sim, tmp_path: Path) -> None:
    """For a second, in which it may also use what was saved before."""
    assert 30 - POINTS <= corner(sim, tmp_path, 30, "handler") <= 30 + POINTS + SAVED_POINTS


def test_who_looks_for_itself_keeps_its_stack_of_contexts(sim: Sim, tmp_path: Path) -> None:
    """Without a watcher each launch looks, in the contexts of all streams."""
    assert corner(sim, tmp_path, 30, "contexts") == 1


def test_a_long_kernel_behind_short_ones_is_paid_for_in_a_per_thread_stream(
    sim: Sim, tmp_path: Path
) -> None:
    assert corner(sim, tmp_path, 30, "hidden") == pytest.approx(30, abs=2 * POINTS)


@pytest.mark.parametrize("way", ["main", "handler"])
def test_every_held_launch_is_counted(sim: Sim, tmp_path: Path, way: str) -> None:
    """Also the last one, behind which the process ends, and those that no watcher sees."""
    command = ("cores_corners", "held", way)
    (done,) = run_together(sim, tmp_path, [command], env=limited(tmp_path, 10))

    counted = activity(tmp_path)
    assert counted.launches_held == done.facts["held"] > 0
    assert counted.held_ns == pytest.approx(done.facts["held_us"] * 1000, rel=0.001)


def test_what_is_over_holds_nobody(sim: Sim, tmp_path: Path) -> None:
    """Forty kernels at a time, each waited for, and of a length that has to be learnt again.

    A burst of them is over before anybody looks: the launch behind it sees that for itself.
    """
    assert corner(sim, tmp_path, 50, "rounds", 10, 5_000) > 0
    assert activity(tmp_path).launches_held == 0


@pytest.mark.parametrize("way", ["sync", "event", "query", "copy", "none"])
@pytest.mark.parametrize(
    ("percent", "kernel_us", "pause_us"),
    [(6, 10, 300), (15, 20, 150), (75, 100, 120), (55, 300, 700)],
)
def test_pauses_between_launches_are_not_charged(
    sim: Sim, tmp_path: Path, way: str, percent: int, kernel_us: int, pause_us: int
) -> None:
    """The limits are half as much again as the need, or a little less."""
    command = ("cores_corners", "paced", way, kernel_us, pause_us)
    (bare,) = run_together(sim, tmp_path, [command], preload=False)

    launches = corner(sim, tmp_path, percent, *command[1:])

    assert launches >= 0.98 * bare.facts["launches"]


@pytest.mark.parametrize(("way", "percent"), [("legacy", 28), ("context", 22)])
def test_pauses_behind_waits_are_not_charged_where_the_wait_leaves_no_marker(
    sim: Sim, tmp_path: Path, way: str, percent: int
) -> None:
    command = ("cores_corners", "paced", way, 10, 300)
    (bare,) = run_together(sim, tmp_path, [command], preload=False)

    launches = corner(sim, tmp_path, percent, *command[1:])

    assert launches >= 0.98 * bare.facts["launches"]


def test_a_wait_that_begins_late_is_not_charged(sim: Sim, tmp_path: Path) -> None:
    """A fourth of the time in kernels; what the host's clock sees beyond them is the host's."""
    command = ("cores_corners", "late_waits")
    waited = sim.with_env(**H200)
    (bare,) = run_together(waited, tmp_path, [command], preload=False)

    launches = corner(waited, tmp_path, 30, *command[1:])

    assert launches >= 0.98 * bare.facts["launches"]


def test_a_long_kernel_is_paid_for_while_short_ones_of_another_stream_are_waited_for(
    sim: Sim, tmp_path: Path
) -> None:
    """All of what the short ones take lies within it: each passes over what it had so far."""
    share = corner(sim.with_env(**H200), tmp_path, 30, "within")

    assert share == pytest.approx(30, abs=POINTS)


@pytest.mark.parametrize("count", [37, 100])
def test_long_kernels_among_short_ones_that_are_waited_for_are_paid_for(
    sim: Sim, tmp_path: Path, count: int
) -> None:
    """One in so many: until a marker has seen one, each is taken for a host that was late."""
    share = corner(sim.with_env(**H200), tmp_path, 30, "rarely_long", count)

    assert 30 - POINTS <= share <= 30 + SAVED_POINTS + UNSEEN_POINTS


@pytest.mark.parametrize(("count", "kernel_us"), [(1, 10), (2, 14), (15, 30), (100, 100)])
def test_short_runs_of_which_few_are_read_are_paid_for(
    sim: Sim, tmp_path: Path, count: int, kernel_us: int
) -> None:
    """Of the usual ones some stand for all; the host sees which are not usual.

    What the program's own events take is charged, 1.5 us behind each four kernels.
    """
    log = tmp_path / "calls"

    share = corner(sim.with_env(**H200, LOG=str(log)), tmp_path, 30, "uneven", count, kernel_us)

    calls = calls_of(log)
    assert 30 - 1.5 * POINTS <= share <= 30 + 1.5 * POINTS
    assert calls.count("cuEventElapsedTime") < 0.75 * calls.count("cuEventSynchronize")


@pytest.mark.parametrize("way", ["running", "idle"])
def test_copies_in_the_legacy_stream_cost_nothing_to_those_that_wait_for_it(
    sim: Sim, tmp_path: Path, way: str
) -> None:
    command = ("cores_corners", "behind", way)
    slow = sim.with_env(BUS_MB_PER_S=SLOW_BUS)
    (bare,) = run_together(slow, tmp_path, [command], preload=False)

    launches = corner(slow, tmp_path, 30, *command[1:])

    assert launches >= 0.98 * bare.facts["launches"]


@pytest.mark.parametrize("way", ["event", "query"])
def test_no_marker_makes_blocking_streams_wait_for_each_other(
    sim: Sim, tmp_path: Path, way: str
) -> None:
    assert corner(sim, tmp_path, 50, "side_by_side", way) == 1


def calls_of(log: Path) -> list[str]:
    """The driver's functions in the order of their calls."""
    return [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]


def test_a_marker_behind_an_event_does_not_keep_its_stream_from_being_ready(
    sim: Sim, tmp_path: Path
) -> None:
    """Where the marker may be what is not ready, it is asked again for a moment."""
    log = tmp_path / "calls"
    never = sim.with_env(LOG=str(log), FAULTS=f"cuStreamQuery@*={NOT_READY}")

    assert corner(never, tmp_path, 99, "ready", "event") == 0
    waited = calls_of(log)
    asked = waited[len(waited) - waited[::-1].index("cuEventSynchronize") :]
    assert asked.count("cuStreamQuery") > 10


def test_nothing_is_put_into_a_stream_before_it_is_asked(sim: Sim, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    corner(sim.with_env(LOG=str(log)), tmp_path, 99, "ready", "none")

    calls = calls_of(log)
    launched = len(calls) - 1 - calls[::-1].index("cuLaunchKernel")
    behind = [call for call in calls[launched:] if call in ("cuEventRecord", "cuStreamQuery")]
    # The first marker is the program's own.
    assert behind[:2] == ["cuEventRecord", "cuStreamQuery"]


def test_a_wait_for_another_context_says_nothing_about_the_threads_own(
    sim: Sim, tmp_path: Path
) -> None:
    """Half a second of a kernel, paid for at 30 % of the time, less what was saved before."""
    assert corner(sim, tmp_path, 30, "other_context") <= 30 + SAVED_POINTS


def test_a_stream_that_ended_without_its_last_marker_gets_no_other(
    sim: Sim, tmp_path: Path
) -> None:
    """Its launch cannot be marked; later it has no handle, which is the legacy stream's as well."""
    log = tmp_path / "calls"
    refused = ";".join(f"cuEventRecord@{n}={REFUSED}" for n in range(2, 20))

    corner(sim.with_env(LOG=str(log), FAULTS=refused), tmp_path, 99, "forgotten")

    calls = calls_of(log)
    assert "cuEventRecord" in calls
    assert "cuEventRecord" not in calls[calls.index("cuStreamDestroy_v2") :]
