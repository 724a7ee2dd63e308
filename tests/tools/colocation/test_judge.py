"""Promises are held against the right references, and the table says what was broken."""

from __future__ import annotations

import math
from typing import Any

import pytest
from colocation.judge import Judge, Results, Verdict, with_shares
from colocation.plot import points
from colocation.scenes import SCENES, WHOLE, Promise, Scene, Tenant, random_pair
from colocation.table import complaints, kept, scene_of, table, undecided

SERVE = {"rate": 60.0, "p99_ms": 8.0, "busy": 12.0}
TRAIN = {"rate": 200.0}
NAME = "serve+train 50/50"


def line(scene: str, way: str, *tenants: dict[str, Any]) -> dict[str, Any]:
    """A measured line."""
    return {"scene": scene, "way": way, "kind": way, "tenants": list(tenants)}


def session(*more: dict[str, Any]) -> list[dict[str, Any]]:
    """Both programs alone, and what they make beside each other under the bare driver."""
    return [
        line("alone: serve", "bare", SERVE),
        line("alone: train", "bare", TRAIN),
        line(NAME, "bare", {**SERVE, "p99_ms": 15.0, "rate": 50.0}, {"rate": 190.0}),
        *more,
    ]


def judged(promise: Promise, *ours: dict[str, Any]) -> list[Verdict]:
    """The verdicts of one promise about such figures."""
    scene = Scene(NAME, (Tenant("serve", 30), Tenant("train", 70)), (promise,))
    results = Results(session(line(NAME, "ours", *ours)))
    return Judge(results).verdicts(scene, "ours", "ours")


@pytest.mark.parametrize(
    ("promise", "bound"),
    [
        (Promise("p99_ms", "most", "bare", plus=3.0, tenant=0), 18.0),
        (Promise("p99_ms", "most", "alone", ratio=1.5, tenant=0), 12.0),
        (Promise("p99_ms", "most", plus=4.0, tenant=0), 4.0),
        (Promise("share", "near", "limit", plus=2.0, tenant=1), 70.0),
        (Promise("share", "near", "fair", plus=2.0, tenant=0), 12.0),  # its need
        (Promise("share", "near", "fair", plus=2.0, tenant=1), 70.0),  # its limit
        (Promise("rate", "least", "allowed", ratio=0.5, tenant=0), 25.0),  # half of bare beside it
        (Promise("rate", "least", "allowed", ratio=0.5, tenant=1), 70.0),  # half of 70 % of alone
        (Promise("rate", "least", "bare", tenant=WHOLE), 240.0),
        (Promise("rate", "near", plus=1.0, ratio=50.0, tenant=1), 50.0),
    ],
)
def test_each_reference_gives_its_bound(promise: Promise, bound: float) -> None:
    (verdict,) = judged(promise, dict(SERVE), dict(TRAIN))

    assert verdict.bound == pytest.approx(bound)
    assert verdict.met is not None


def test_a_bound_itself_is_kept_and_what_lies_beyond_is_broken() -> None:
    most = Promise("p99_ms", "most", "bare", plus=3.0, tenant=0)
    near = Promise("share", "near", "limit", plus=2.0, tenant=1)

    assert judged(most, {**SERVE, "p99_ms": 18.0}, TRAIN)[0].met is True
    assert judged(most, {**SERVE, "p99_ms": 18.1}, TRAIN)[0].met is False
    assert judged(near, SERVE, {"rate": 144.0})[0].met is True
    assert judged(near, SERVE, {"rate": 145.0})[0].met is False
    assert judged(near, SERVE, {"rate": 135.0})[0].met is False


def test_a_promise_about_each_is_held_against_each() -> None:
    verdicts = judged(Promise("rate", "least", "bare", ratio=0.97), dict(SERVE), {"rate": 100.0})

    assert [verdict.tenant for verdict in verdicts] == [0, 1]
    assert [verdict.met for verdict in verdicts] == [True, False]
    assert kept(verdicts) == "BROKEN"


def test_what_was_not_measured_is_neither_kept_nor_broken() -> None:
    (verdict,) = judged(Promise("p99_ms", "most", "mps", tenant=0), dict(SERVE), dict(TRAIN))

    assert verdict.met is None
    assert kept([verdict]) == "unknown"
    assert "not measured" in verdict.told()


def test_promises_of_one_way_do_not_bind_another() -> None:
    over_mps = Promise("rate", "least", "bare", way="ours+mps")

    assert judged(over_mps, dict(SERVE), dict(TRAIN)) == []


def test_a_scene_of_one_is_held_against_the_program_alone() -> None:
    scene = Scene("serve at 30", (Tenant("serve", 30),), (Promise("p99_ms", "most", "bare"),))
    results = Results(session(line("serve at 30", "ours", {**SERVE, "p99_ms": 9.0})))

    (verdict,) = Judge(results).verdicts(scene, "ours", "ours")

    assert (verdict.bound, verdict.met) == (8.0, False)


def test_a_share_is_the_need_times_what_is_made_of_it() -> None:
    found = with_shares({"rate": 30.0, "by_second": [30.0, 15.0]}, dict(SERVE))

    assert (found["of_alone"], found["share"]) == (50.0, 6.0)
    assert (found["second_most"], found["second_least"]) == (6.0, 3.0)


def test_without_the_program_alone_nothing_is_a_share() -> None:
    assert math.isnan(with_shares({"rate": 30.0}, None)["share"])


def test_the_table_has_a_row_for_each_line_and_says_what_is_broken() -> None:
    late = {**SERVE, "p99_ms": 38.7}
    failed = {"scene": NAME, "way": "mps", "kind": "mps", "error": "serve ended: status -9"}
    body = {"lines": session(line(NAME, "ours", late, {"rate": 122.0}), failed)}

    text = table(body, judged=True)
    rows = [row for row in text.splitlines() if row.startswith(NAME)]

    assert [row.split()[2] for row in rows] == ["bare", "ours", "mps"]
    assert "8 + -" not in rows[1]
    assert "38.7 + -" in rows[1]
    assert "60 + 122" in rows[1]
    assert rows[1].endswith("BROKEN")
    assert "status -9" in rows[2]
    assert complaints(body)[0] == (
        f"{NAME} | ours | tenant 0: p99_ms at most bare + 3: 38.7 against 18, BROKEN"
    )


def test_a_scene_that_is_no_longer_known_is_shown_without_promises() -> None:
    body = {"lines": session(line("gone", "ours", dict(SERVE)))}

    assert "unknown scene" in table(body, judged=True)
    assert complaints(body) == []


def test_every_scene_is_found_again_by_the_name_in_a_file() -> None:
    for scene in SCENES:
        assert scene_of({"scene": scene.name}) == scene


def test_the_picture_shows_scenes_with_neighbours() -> None:
    body = {"lines": session(line(NAME, "ours", {**SERVE, "p99_ms": 38.7}, {"rate": 100.0}))}

    drawn = points(body)

    assert [(one.scene, one.way) for one in drawn] == [(NAME, "bare"), (NAME, "ours")]
    assert (drawn[1].work_percent, drawn[1].p99_ms) == (150.0, 38.7)


# A pair by a seed whose first program has 40 % and does twice as much work as time alone.
PAIR = next(pair for pair in map(random_pair, range(9)) if pair.tenants[0].limit == 40)
TWICE = {"rate": 200.0, "busy": 100.0}
PLAIN = {"rate": 100.0, "busy": 100.0}
BARE = {"rate": 100.0, "busy": 99.0}


def paired(
    first: dict[str, float],
    second: dict[str, float],
    alone: dict[str, float] = TWICE,
    bare: dict[str, float] = BARE,
) -> dict[str, Any]:
    """A session of that pair, whose second program has half of the GPU under the bare driver."""
    one, other = (f"alone: {tenant.reference}" for tenant in PAIR.tenants)
    lines = [line(one, "bare", alone), line(other, "bare", PLAIN)]
    lines += [line(PAIR.name, "bare", bare, {"rate": 50.0, "busy": 99.0})]
    return {"lines": [*lines, line(PAIR.name, "ours", first, second)]}


@pytest.mark.parametrize(
    ("rate", "busy", "shared", "least", "most"),
    [
        # Three quarters of the work that it may do, in the time that it may have.
        (60.0, 40.0, 0.0, True, True),
        # The same work in less time, and the neighbour's kernels were never there.
        (60.0, 38.7, 0.0, False, True),
        # Of the 20 that both cover the neighbour had 10; some of the rest may be changes of hands.
        (60.0, 50.0, 20.0, None, True),
        # Of the 10 that both cover the neighbour had 5, and the limit is 40.
        (60.0, 60.0, 10.0, None, None),
        # How much both cover is not known: it had 30 to 45.
        (60.0, 50.0, None, None, None),
        # Enough by its work; it had 41 to 45.
        (80.0, 96.0, None, True, None),
        # Too much by its work.
        (90.0, 45.0, 0.0, True, False),
    ],
)
def test_a_tenant_whose_work_overlaps_is_judged_by_its_time(
    rate: float, busy: float, shared: float | None, least: bool | None, most: bool | None
) -> None:
    told = {} if shared is None else {"shared": shared}
    other = {"rate": 55.0, "busy": 55.0 + (shared or 0.0) / 2, **told}
    body = paired({"rate": rate, "busy": busy, **told}, other)

    verdicts = Judge(Results(body["lines"])).verdicts(PAIR, "ours", "ours")

    assert [verdict.met for verdict in verdicts if verdict.tenant == 0] == [least, most]


def test_who_makes_more_than_under_the_bare_driver_is_not_asked_for_its_time() -> None:
    bare = {"rate": 50.0, "busy": 99.0}  # it had 25 to 50
    body = paired({"rate": 52.0, "busy": 45.0}, {"rate": 55.0, "busy": 55.0}, bare=bare)

    first = Judge(Results(body["lines"])).verdicts(PAIR, "ours", "ours")[0]

    assert (first.met, first.time) == (True, None)


def test_who_needs_less_time_than_its_limit_is_promised_no_more() -> None:
    alone, bare = {"rate": 60.0, "busy": 30.0}, {"rate": 60.0, "busy": 60.0}
    first = {"rate": 40.0, "busy": 30.0, "shared": 0.0}
    body = paired(first, {"rate": 60.0, "busy": 60.0, "shared": 0.0}, alone, bare)

    verdict = Judge(Results(body["lines"])).verdicts(PAIR, "ours", "ours")[0]

    assert (verdict.met, verdict.bound) == (True, pytest.approx(0.97 * 30))


def test_the_same_figures_of_a_plain_program_are_judged_by_its_work() -> None:
    first = {"rate": 30.0, "busy": 40.0, "shared": 0.0}
    body = paired(first, {"rate": 60.0, "busy": 60.0, "shared": 0.0}, PLAIN)

    assert complaints(body) == [
        f"{PAIR.name} | ours | tenant 0: rate at least 0.97 x allowed: 30 against 38.8, BROKEN"
    ]


def test_what_time_does_not_decide_is_told_and_no_complaint() -> None:
    body = paired({"rate": 60.0, "busy": 50.0}, {"rate": 55.0, "busy": 55.0})

    assert complaints(body) == []
    where = f"{PAIR.name} | ours | tenant 0: time at"
    assert undecided(body) == [
        f"{where} least 0.97 x allowed: 30 to 45 against 38.8, undecided",
        f"{where} most limit + 2: 30 to 45 against 42, undecided",
    ]
    assert table(body, judged=True).splitlines()[-1].endswith("unknown")


def test_without_the_pair_under_the_bare_driver_nothing_is_decided_by_time() -> None:
    body = paired({"rate": 60.0, "busy": 40.0}, {"rate": 55.0, "busy": 55.0})
    lines = [one for one in body["lines"] if (one["scene"], one["way"]) != (PAIR.name, "bare")]

    first = Judge(Results(lines)).verdicts(PAIR, "ours", "ours")[0]

    assert (first.promise.figure, first.met) == ("rate", None)
