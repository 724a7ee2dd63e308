"""What tenants of one GPU are promised (docs/side-by-side.md), in virtual time.

Programs are small models of what was measured on an H200; the driver under them alternates between
processes as that one did. The same in every run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from statistics import mean

import pytest

from tests.support.machine import Sim

from .tenants import HIGH, LATE, LOW, Tenant, drawn, meet

STEP = 0.15  # of a run: two steps of a decoder, which end within it or behind
POINTS = 2.5  # of a limit, and what may be used at once in so few seconds
ENOUGH = 0.97  # of what the bare driver or the limit allows
OF_ONE = 98.0  # percent of one bare process that saturates, in sum
PAIRS = int(os.environ.get("GPUFENCE_TEST_PAIRS", "50"))  # 1,000 in a night
# Of 1,000 those that do not (docs/results/2026-11-30-h200.md).
KNOWN = pytest.mark.xfail(reason="a host-bound program beside others is charged wrongly")
KNOWN_SEEDS = {316, 373, 866}
LIMITS = (40, 60)

pytestmark = pytest.mark.skipif(
    "GPUFENCE_TEST_RUNTIME" in os.environ, reason="a sanitizer keeps its own account of threads"
)


@pytest.mark.parametrize("limits", [(50, 50), (30, 70)])
def test_requests_beside_training_take_as_long_as_without_a_limit(
    sim: Sim, tmp_path: Path, limits: tuple[int, int]
) -> None:
    tenants = [Tenant("serve", limits[0]), Tenant("train", limits[1])]

    bare, _ = meet(sim, tmp_path, tenants, preload=False)
    serve, train = meet(sim, tmp_path, tenants)

    assert serve["p99_ms"] <= bare["p99_ms"] + 3
    assert serve["rate"] >= ENOUGH * bare["rate"]
    assert train["busy"] == pytest.approx(limits[1], abs=POINTS)


@pytest.mark.parametrize("other", ["generate", "train"])
def test_generation_that_waits_for_the_host_keeps_its_rate(
    sim: Sim, tmp_path: Path, other: str
) -> None:
    tenants = [Tenant("generate", 50), Tenant(other, 50)]

    bare, _ = meet(sim, tmp_path, tenants, preload=False, ms=1_500)
    generate, beside = meet(sim, tmp_path, tenants, ms=1_500)

    assert generate["rate"] >= ENOUGH * bare["rate"]
    assert generate["p99_ms"] <= 1.3 * bare["p99_ms"]
    assert beside["busy"] <= 50 + 2 * POINTS


def test_a_neighbour_that_came_between_two_launches_is_not_charged(
    sim: Sim, tmp_path: Path
) -> None:
    """Taken for long launches of its own, such stays would leave it 2.1 % at a limit of 6."""
    sparse = (250, 3.2, 30)

    program, _ = meet(sim, tmp_path, [Tenant(sparse, 6), Tenant("saturate 5", 80)], machine=LATE)

    assert program["busy"] >= 4.5


@pytest.mark.parametrize("length", ["saturate 0.5", "saturate 5"])
def test_pieces_whose_results_are_copied_are_not_charged_for_the_neighbours_time(
    sim: Sim, tmp_path: Path, length: str
) -> None:
    """Behind a copy an event is reached at once, the kernel only after the neighbour's slice."""
    tenants = [Tenant("copied pieces", 40), Tenant(length, 60)]

    bare, _ = meet(sim, tmp_path, tenants, preload=False)
    pieces, beside = meet(sim, tmp_path, tenants)

    assert pieces["rate"] >= ENOUGH * bare["rate"]
    assert beside["busy"] == pytest.approx(60, abs=POINTS)


def test_two_decoders_alternate_as_without_a_limit(sim: Sim, tmp_path: Path) -> None:
    tenants = [Tenant("decoder", 50)] * 2

    bare = meet(sim, tmp_path, tenants, preload=False)
    ours = meet(sim, tmp_path, tenants)

    assert sum(each["rate"] for each in ours) >= ENOUGH * sum(each["rate"] for each in bare)
    assert max(each["p99_ms"] for each in ours) <= 1.3 * max(each["p99_ms"] for each in bare)


@pytest.mark.parametrize("step_us", [2_250, 3_000])
def test_decoders_whose_steps_are_longer_than_a_slice_take_no_turns(
    sim: Sim, tmp_path: Path, step_us: int
) -> None:
    """In turns of 35 ms, an H100's had steps of 38 ms; without a limit, of 5."""
    tenants = [Tenant((1, step_us, 10, "graph"), 50)] * 2

    bare = meet(sim, tmp_path, tenants, preload=False)
    ours = meet(sim, tmp_path, tenants)

    assert sum(each["rate"] for each in ours) >= ENOUGH * sum(each["rate"] for each in bare)
    # One slice more, where a step is held for what little it owes.
    assert max(each["p99_ms"] for each in ours) <= 1.5 * max(each["p99_ms"] for each in bare)


def test_a_decoder_at_half_has_its_steps_evenly(sim: Sim, tmp_path: Path) -> None:
    (decoder,) = meet(sim, tmp_path, [Tenant("decoder", 50)])

    assert decoder["p99_ms"] <= 2 * 1.98 + 0.1
    assert decoder["busy"] == pytest.approx(50, abs=POINTS)


@pytest.mark.parametrize("limits", [(30, 70), (50, 50), (25, 25, 25, 25)])
@pytest.mark.parametrize("length", ["saturate 0.5", "saturate 5", "saturate 25"])
def test_who_saturate_have_their_shares_and_together_all_of_it(
    sim: Sim, tmp_path: Path, length: str, limits: tuple[int, ...]
) -> None:
    (alone,) = meet(sim, tmp_path, [Tenant(length, 100)], preload=False, ms=5_000)
    ours = meet(sim, tmp_path, [Tenant(length, limit) for limit in limits], ms=5_000)

    for each, limit in zip(ours, limits, strict=True):
        assert each["busy"] == pytest.approx(limit, abs=POINTS)
    # In the first second it is found out who saturates.
    later = [sum(each["seconds"][1:]) for each in ours]
    under_way = len(limits) * float(length.split()[1]) / 10  # percent of a second
    assert sum(later) + under_way >= OF_ONE / 100 * sum(alone["seconds"][1:])


def test_a_long_kernel_is_always_queued_behind_the_one_that_runs(sim: Sim, tmp_path: Path) -> None:
    """What kernels took before turns began, beside three others, counts for long."""
    ours = meet(sim, tmp_path, [Tenant((1, 25_000, 3, "ahead", 2), 25)] * 4, ms=10_000)

    assert sum(each["busy"] for each in ours) >= 99


def test_turns_of_long_kernels_pass_on_when_their_work_ends(sim: Sim, tmp_path: Path) -> None:
    """Threads wake as late as an H200's host has them: 97.3 to 98.2 with looks too far apart."""
    tenants = [Tenant((1, 25_000, 3, "ahead", 4), 25)] * 4

    ours = meet(sim, tmp_path, tenants, ms=6_000, machine={"GPUFENCE_TEST_WAKE_NS": "60000"})

    assert sum(each["busy"] for each in ours) >= 98.5


@pytest.mark.parametrize("limit", [30, 50])
def test_turns_pass_on_where_nobody_knows_when_their_work_ends(
    sim: Sim, tmp_path: Path, limit: int
) -> None:
    """Kernels of 1 to 24 ms: 97.3 and 97.9 where half of the mean time left was slept."""
    uneven = (2, 12_000, 5, "spread")
    tenants = [Tenant("saturate 0.5", 100 - limit), Tenant(uneven, limit)]

    ours = meet(sim, tmp_path, tenants, ms=4_000, machine=LATE)

    assert sum(each["busy"] for each in ours) >= 98.3


@pytest.mark.parametrize(
    ("work_launches", "pause_ms", "lanes"),
    [(25, 1, 1), (40, 1, 1), (55, 1, 1), (40, 0.5, 1), (21, 0.22, 1), (21, 0.22, 4)],
)
@pytest.mark.parametrize("neighbour", ["saturate 0.5", "saturate 5", "saturate 25"])
def test_work_with_pauses_waits_for_no_turns(
    sim: Sim, tmp_path: Path, work_launches: int, pause_ms: float, lanes: int, neighbour: str
) -> None:
    """Milliseconds of work, and a pause: with turns it had 32 to 38 of 40."""
    program = (work_launches, 215, 10, "burst", 1, pause_ms, "lanes", lanes)
    tenants = [Tenant(program, 40), Tenant(neighbour, 60)]

    bare, _ = meet(sim, tmp_path, tenants, preload=False)
    ours, _ = meet(sim, tmp_path, tenants)

    assert ours["busy"] >= ENOUGH * min(40, bare["busy"])


def test_turns_make_up_for_pauses_between_short_kernels(sim: Sim, tmp_path: Path) -> None:
    """In turns divided by time it had 33 % of 37, as it uses four fifths of its turns."""
    short = (67, 10.6, 6, "ahead", 1, "spread")
    tenants = [Tenant(short, 40), Tenant((2, 6_600, 12, "ahead", 3), 60)]

    bare, _ = meet(sim, tmp_path, tenants, preload=False)
    ours, other = meet(sim, tmp_path, tenants)

    assert ours["busy"] >= ENOUGH * min(40, bare["busy"])
    assert other["busy"] >= 50


def test_who_has_more_than_an_equal_part_of_the_turns_gets_no_more_for_its_pauses(
    sim: Sim, tmp_path: Path
) -> None:
    """Divided by what is charged alone, the other one had 35.6 %, bare 46."""
    short = (27, 8.5, 6, "ahead", 1)
    tenants = [Tenant((3, 402, 14.6, "ahead", 1), 40), Tenant(short, 60)]

    other, ours = meet(sim, tmp_path, tenants)

    assert other["busy"] >= 40 - POINTS
    assert ours["busy"] >= 45


@pytest.mark.parametrize("neighbour", ["three long kernels", "train", "saturate 5"])
@pytest.mark.parametrize("machine", [{}, LATE])
def test_work_that_turns_sparse_gives_its_turn_away(
    sim: Sim, tmp_path: Path, neighbour: str, machine: dict[str, str]
) -> None:
    """Its turns left most of the GPU unused until its queue no longer counted as deep.

    The neighbours had 47 to 59 of 60, and 48 of 58 on an H200.
    """
    tenants = [Tenant(neighbour, 60), Tenant("deep, then sparse", 40)]

    bare = meet(sim, tmp_path, tenants, preload=False)
    ours = meet(sim, tmp_path, tenants, machine=machine)

    assert ours[0]["busy"] >= ENOUGH * min(60, bare[0]["busy"])
    assert ours[1]["busy"] >= ENOUGH * min(40, bare[1]["busy"])


def test_trainings_that_read_their_loss_behind_each_step_take_turns(
    sim: Sim, tmp_path: Path
) -> None:
    tenants = [Tenant((40, 215, 10, "burst", 1, 0.3), 50)] * 2

    bare = meet(sim, tmp_path, tenants, preload=False)
    ours = meet(sim, tmp_path, tenants)

    assert sum(each["busy"] for each in ours) >= 1.03 * sum(each["busy"] for each in bare)


@pytest.mark.parametrize(
    ("bursts", "limit", "share"),
    [
        ("bursts 130 130", 30, 30),
        ("bursts 130 130", 60, 49.5),
        ("bursts 90 70", 60, 55.5),
        ("bursts 100 230", 25, 25),
    ],
)
def test_bursts_that_need_less_than_the_limit_are_not_slowed(
    sim: Sim, tmp_path: Path, bursts: str, limit: int, share: float
) -> None:
    (ours,) = meet(sim, tmp_path, [Tenant(bursts, limit)], ms=6_000)

    assert ours["busy"] == pytest.approx(share, abs=POINTS)


def test_what_is_free_is_divided_up_to_the_soft_shares_and_given_back(
    sim: Sim, tmp_path: Path
) -> None:
    soft = Tenant("saturate 0.5", 30, {"GPUFENCE_CORE_SOFT_LIMIT": "80"})
    third = Tenant("saturate 0.5", 40, delay_ms=2_000)

    one, other, late = meet(sim, tmp_path, [soft, soft, third], ms=7_000)

    # A turn more or less is 3.5 % of a second.
    for each in (one, other):
        assert each["seconds"][1] == pytest.approx(50, abs=POINTS)
        assert mean(each["seconds"][4:]) == pytest.approx(30, abs=POINTS)
    assert late["seconds"][0] >= 40 - POINTS
    assert mean(late["seconds"][2:]) == pytest.approx(40, abs=POINTS)


@pytest.mark.parametrize(
    ("server", "limit", "training", "slower", "left"),
    [
        ("foreground", 50, "train", 1.4, 0.88),
        ("foreground", 30, "eager training", 1.4, 0.76),
        ("foreground", 30, "event by event", 1.4, 0.75),
        ("eager foreground", 30, "eager training", 1.25, 0.55),
    ],
)
def test_a_higher_priority_goes_first_and_the_lower_one_has_the_rest(
    sim: Sim, tmp_path: Path, server: str, limit: int, training: str, slower: float, left: float
) -> None:
    """Captured requests are told at once. Told at looks they have 1.6 times their p99 alone.

    Beside a program that waits for an event behind each launch they have 3.8 times that where such
    launches have no yield points.
    A server that launches kernel by kernel waits for its host most of the time. Told at once,
    training would have 41 % of its rate beside it.
    """
    first = Tenant(server, limit, HIGH)
    last = Tenant(training, 80, LOW)

    (alone,) = meet(sim, tmp_path, [first], preload=False)
    bare, _ = meet(sim, tmp_path, [first, last], preload=False)
    (whole,) = meet(sim, tmp_path, [last], preload=False)
    foreground, background = meet(sim, tmp_path, [first, last])

    assert foreground["p99_ms"] <= min(slower * alone["p99_ms"], 0.5 * bare["p99_ms"])
    assert foreground["rate"] >= ENOUGH * alone["rate"]
    assert background["rate"] >= left * whole["rate"]


def test_kernels_go_on_as_soon_as_a_request_of_higher_priority_is_over(
    sim: Sim, tmp_path: Path
) -> None:
    """Where that counted from a look, which threads that wake late make later, they had 75.1 %."""
    first = Tenant("foreground", 30, HIGH)
    last = Tenant("saturate 0.5", 80, LOW)

    (whole,) = meet(sim, tmp_path, [last], preload=False, machine=LATE)
    _, background = meet(sim, tmp_path, [first, last], machine=LATE)
    # Of the 390 requests of three seconds four are slower than p99: it says 1.1 to 1.3 times.
    (alone,) = meet(sim, tmp_path, [first], preload=False, ms=10_000, machine=LATE)
    foreground, _ = meet(sim, tmp_path, [first, last], ms=10_000, machine=LATE)

    assert foreground["p99_ms"] <= 1.2 * alone["p99_ms"]
    assert background["rate"] >= 0.757 * whole["rate"]


def test_pieces_that_follow_at_once_keep_the_gpu_for_a_higher_priority(
    sim: Sim, tmp_path: Path
) -> None:
    """Where the end of one was told at once and the begin of the next at a look, they had 20 %."""
    first = Tenant("copied pieces", 99, HIGH)
    last = Tenant("saturate 0.5", 80, LOW)

    (alone,) = meet(sim, tmp_path, [first], preload=False, machine=LATE)
    pieces, background = meet(sim, tmp_path, [first, last], machine=LATE)

    assert pieces["rate"] >= 0.85 * alone["rate"]
    assert background["busy"] >= 5


@pytest.mark.parametrize("late_ns", [0, 50_000])
@pytest.mark.parametrize("background", ["train", "saturate 0.5", "eager training"])
@pytest.mark.parametrize("limit", [30, 60])
def test_a_higher_priority_that_never_pauses_stays_within_its_limit(
    sim: Sim, tmp_path: Path, limit: int, background: str, late_ns: int
) -> None:
    """And has it: with queues that are short, and none that stand, it had 42 % at a limit of 60.

    Told of each of its pieces at once, it had 76 %. So it had where its long launches, one in
    eleven, were taken for neighbours that came between, since the others are short; or 35 %.
    """
    first = Tenant("pieces", limit, HIGH)
    last = Tenant(background, 80, LOW)
    late = {"GPUFENCE_TEST_WAKE_NS": str(late_ns)}

    foreground, rest = meet(sim, tmp_path, [first, last], machine=late)

    assert foreground["busy"] == pytest.approx(limit, abs=POINTS)
    assert rest["busy"] >= (15 if late_ns else 20)


def test_a_program_without_pauses_leaves_its_gaps_to_a_lower_priority(
    sim: Sim, tmp_path: Path
) -> None:
    """Told of each of its tokens at once, training would have a tenth of its rate."""
    first = Tenant("generate", 60, HIGH)
    last = Tenant("train", 80, LOW)

    (alone,) = meet(sim, tmp_path, [first], preload=False)
    (training,) = meet(sim, tmp_path, [last], preload=False)
    foreground, background = meet(sim, tmp_path, [first, last])

    assert foreground["rate"] >= 0.95 * alone["rate"]
    assert background["rate"] >= 0.5 * training["rate"]


@pytest.mark.parametrize("floor", [5, 10, 20])
@pytest.mark.parametrize(("program", "late_ns"), [("saturate 0.5", 0), ("eager training", 50_000)])
def test_a_lower_priority_has_its_floor(
    sim: Sim, tmp_path: Path, program: str, late_ns: int, floor: int
) -> None:
    """And no more: by its mean over some hundredths of a second it had 13 % with a floor of 20.

    Charged for what it waits until the GPU comes to it again, it had none (an H200, too). Where it
    went behind again as soon as the other one waited for it, both had 95.5 % together.
    """
    first = Tenant("saturate 0.5", 99, HIGH)
    settings = {**LOW, "GPUFENCE_CORE_FLOOR": str(floor)}
    late = {"GPUFENCE_TEST_WAKE_NS": str(late_ns)}

    foreground, background = meet(
        sim, tmp_path, [first, Tenant(program, 50, settings)], ms=4_000, machine=late
    )

    assert background["busy"] == pytest.approx(floor, abs=1)
    assert foreground["busy"] + background["busy"] >= 96.5


@pytest.mark.parametrize("limits", [(50, 50), (30, 70)])
def test_under_mps_nobody_takes_turns_and_limits_hold(
    sim: Sim, tmp_path: Path, limits: tuple[int, int]
) -> None:
    mps = {"GPUFENCE_SIM_MPS": "1"}
    tenants = [Tenant("decoder", limit) for limit in limits]

    bare = meet(sim, tmp_path, tenants, preload=False, machine=mps)
    ours = meet(sim, tmp_path, tenants, machine=mps)

    assert sum(each["rate"] for each in ours) >= 0.95 * sum(each["rate"] for each in bare)
    for each, limit in zip(ours, limits, strict=True):
        assert each["busy"] <= limit + 2 * POINTS + STEP
        assert each["p99_ms"] <= 3 * bare[0]["p99_ms"]


def test_under_mps_short_kernels_get_back_no_more_than_was_charged(
    sim: Sim, tmp_path: Path
) -> None:
    """Neighbours take a part of each kernel there, and of no pause: else 36 to 37 % at 30."""
    short = Tenant((16, 10, 2.6, "ahead", 50), 30)

    both = meet(sim, tmp_path, [short, short], ms=2_000, machine={"GPUFENCE_SIM_MPS": "1"})

    assert max(each["busy"] for each in both) <= 30 + 2 * POINTS


@pytest.mark.parametrize("other", ["serve", "train"])
@pytest.mark.parametrize("program", ["eager training", "pieces", "pieces ahead"])
def test_long_kernels_among_short_ones_are_charged(
    sim: Sim, tmp_path: Path, program: str, other: str
) -> None:
    """Samples of single launches left them out: 63 % of the GPU at a limit of 40."""
    mixed, _ = meet(sim, tmp_path, [Tenant(program, 40), Tenant(other, 60)])

    assert 28 <= mixed["busy"] <= 40 + POINTS


@pytest.mark.parametrize("small", [(1, 5, 2.9), (1, 100, 2.9), (5, 24, 2.9)])
def test_the_first_launch_behind_an_event_is_sampled_as_well(
    sim: Sim, tmp_path: Path, small: tuple[float, ...]
) -> None:
    """Each fifth kernel takes as long as two others, and was in no sample: 64 to 69 % at 60."""
    deep = Tenant((5, 20.9, 2.6, "ahead", 382, "spread"), 60)

    _, held = meet(sim, tmp_path, [Tenant((*small, "spread"), 40), deep])

    assert 50 <= held["busy"] <= 60 + POINTS


def test_all_that_neighbours_had_among_short_kernels_is_given_back(
    sim: Sim, tmp_path: Path
) -> None:
    """Pauses between them are taken off whatever lies there: 31.8 % at 40, bare 42.5."""
    short = Tenant((14, 7.3, 6.0, "ahead", 4), 40)

    ours, _ = meet(sim, tmp_path, [short, Tenant((4, 1_938.8, 10.9, "spread"), 60)])

    assert 34.5 <= ours["busy"] <= 40 + POINTS


def test_pieces_in_markers_are_not_charged_for_slices_that_they_never_lost(
    sim: Sim, tmp_path: Path
) -> None:
    """Pair 741, with threads that wake late: charged so, they had 2.6 % and the other one 80.5."""
    pieces = Tenant((4, 31.2, 19.6), 40)
    deep = Tenant((262, 55.1, 3.5, "ahead", 2, "spread"), 60)

    first, second = meet(sim, tmp_path, [pieces, deep], machine=LATE)

    assert first["busy"] >= 15
    assert second["busy"] <= 60 + POINTS


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=KNOWN if seed in KNOWN_SEEDS else ()) for seed in range(PAIRS)],
)
def test_random_pairs_keep_their_limits_and_nobody_starves(
    sim: Sim, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    tenants = [Tenant(drawn(dice), limit) for limit in LIMITS]
    ms = 2_000
    saved = 50 / ms * 100  # of GPU time, which may be used at once

    bare = meet(sim, tmp_path, tenants, preload=False, ms=ms)
    ours = meet(sim, tmp_path, tenants, ms=ms)

    for alone, fenced, tenant in zip(bare, ours, tenants, strict=True):
        allowed = min(alone["busy"], tenant.limit)
        assert fenced["busy"] <= tenant.limit + saved + 2, tenant
        assert fenced["busy"] >= min(0.8 * allowed, allowed - 2), tenant
