"""What two tenants' records and work say together about the time that each had."""

from __future__ import annotations

import itertools
import random

import pytest
from colocation.figures import common, covered_percent, united
from colocation.own_time import Span, overlaps_itself, spans

WINDOW = (0, 1_000)
DRIVER = 2


def figures(
    share: float, busy: float, overlaps: bool, shared: float | None = None
) -> dict[str, float]:
    """Of a tenant."""
    told = {"share": share, "busy": busy, "overlaps": overlaps}
    return told if shared is None else {**told, "shared": shared}


def test_more_work_than_time_alone_is_work_that_overlaps() -> None:
    assert overlaps_itself({"rate": 120.0, "busy": 95.0})
    assert not overlaps_itself({"rate": 97.0, "busy": 95.0})
    assert not overlaps_itself({"rate": 97.0})
    assert not overlaps_itself(None)


def test_a_plain_programs_time_is_its_work() -> None:
    found = spans([figures(40, 90, False, 80), figures(30, 90, False, 80)])

    assert found == [Span(40, 40), Span(30, 30)]


@pytest.mark.parametrize(
    ("mine", "others", "shared", "expected"),
    [
        # Nobody else was there: the records are right.
        ((20, 38), (40, 40), 0, Span(38, 38)),
        # The other one ran all the time that its records cover, so also where both cover it.
        ((20, 50), (40, 40), 15, Span(20, 35)),
        # The other one's 10 may all lie where both cover it, and none outside.
        ((20, 50), (10, 15), 15, Span(20, 40)),
        # Not known how much both cover: at least 10, since 110 do not fit, at most 50.
        ((20, 50), (40, 60), None, Span(20, 50)),
        ((20, 70), (60, 60), None, Span(20, 40)),
        # 600 short kernels a second that interrupt long ones: a third of the time is changes.
        ((42, 73), (5.4, 5.4), 2.3, Span(42, 70.7)),
    ],
)
def test_the_others_work_says_whose_the_time_was_that_both_cover(
    mine: tuple[float, float], others: tuple[float, float], shared: float | None, expected: Span
) -> None:
    found = spans([figures(*mine, True, shared), figures(*others, False, shared)])

    assert found is not None
    assert (found[0].least, found[0].most) == pytest.approx((expected.least, expected.most))


def test_kernels_that_meet_more_than_alone_leave_less_time_for_their_work() -> None:
    """A limit holds streams and lets them go together: 1.43 kernels at a time, alone 1.32."""
    held = {**figures(66.4, 74.2, True, 4.6), "rate": 89.0, "in_flight": 1.432}
    other = figures(20.1, 19.8, False, 4.6)

    met = spans([held, other])
    as_alone = spans([{**held, "in_flight": 1.316}, other])

    assert met is not None
    assert as_alone is not None
    assert met[0].least == pytest.approx(62.2, abs=0.1)
    assert as_alone[0].least == 66.4


def test_what_is_no_pair_or_was_not_measured_has_no_time() -> None:
    plain = figures(30, 30, False)

    assert spans([plain]) is None
    assert spans([plain, plain, plain]) is None
    assert spans([plain, figures(float("nan"), 30, True)]) is None
    assert spans([plain, figures(30, float("nan"), True)]) is None
    assert spans([figures(30, float("nan"), False), figures(30, 30, True)]) is None


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("is_told", [True, False])
def test_the_truth_lies_in_the_span(seed: int, is_told: bool) -> None:
    dice = random.Random(seed)
    # A GPU whose time is the first one's, the other one's, the driver's, which changes from one to
    # the other, or nobody's, piece by piece.
    weights = (4, 3, dice.choice((0, 2)), dice.choice((0, 2)))
    owners = dice.choices((0, 1, DRIVER, None), weights=weights, k=WINDOW[1])
    ran = [[(at, at + 1) for at in range(WINDOW[1]) if owners[at] == who] for who in (0, 1)]
    # A kernel that the driver interrupts covers what the neighbour has meanwhile.
    covers = [united([*own, *_interruptions(dice, own, owners)]) for own in ran]
    both = covered_percent(common(*covers), WINDOW)
    times = [len(own) / 10 for own in ran]
    at_once = [dice.random() < 0.7, dice.random() < 0.3]
    told = [
        figures(time * (dice.uniform(0.3, 1.0) if overlaps else 1.0), covered, overlaps)
        for time, overlaps, covered in zip(
            times, at_once, (covered_percent(one, WINDOW) for one in covers), strict=True
        )
    ]
    found = spans([{**one, "shared": both} for one in told] if is_told else told)

    assert found is not None
    for span, time in zip(found, times, strict=True):
        assert span.least - 1e-6 <= time <= span.most + 1e-6


def _interruptions(
    dice: random.Random, own: list[tuple[int, int]], owners: list[int | None]
) -> list[tuple[int, int]]:
    """Gaps between two pieces of one's own in which the neighbour has the GPU without a pause."""
    gaps = [(one[1], other[0]) for one, other in itertools.pairwise(own)]
    others = [(gap, {*owners[slice(*gap)]} - {DRIVER}) for gap in gaps]
    return [gap for gap, who in others if who and None not in who and dice.random() < 0.5]
