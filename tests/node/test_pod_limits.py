"""What pods say of their limits: which annotation is for whom, how it is read and taken back."""

from __future__ import annotations

import pytest
from gpufence.config.terms import Priority, Terms
from gpufence.errors import ToolError
from gpufence.node import pod_limits
from gpufence.state.limits_bytes import Amounts

ALL = pod_limits.NAMES
GIB = 1 << 30


def test_a_containers_own_word_goes_before_the_pods_and_that_before_its_class() -> None:
    said = {
        "gpufence.io/memory": "2GiB",
        "gpufence.io/cores": "30",
        "train.gpufence.io/memory": "1GiB",
        "other.gpufence.io/cores": "10",
        "other.io/weight": "7",
    }
    usual = {"priority": "low", "cores": "50"}

    found = pod_limits.texts(said, "train", ALL, usual)
    assert found == {"memory": "1GiB", "cores": "30", "priority": "low"}
    assert pod_limits.texts(said, "", ALL, {}) == {"memory": "2GiB", "cores": "30"}


def test_what_pods_may_not_say_is_passed_by() -> None:
    said = {"gpufence.io/memory": "2GiB", "gpufence.io/priority": "high"}

    assert pod_limits.texts(said, "train", ["memory"], {}) == {"memory": "2GiB"}
    assert pod_limits.texts(said, "train", [], {"priority": "low"}) == {"priority": "low"}


def test_every_name_is_read_as_its_flag_is() -> None:
    said = {
        "memory": "2GiB",
        "cores": "30",
        "soft-cores": "60",
        "priority": "high",
        "weight": "3",
        "core-burst": "1s",
        "core-floor": "10",
        "frozen": "true",
    }

    assert set(said) == set(ALL)
    assert pod_limits.amounts(said) == Amounts(
        memory=2 * GIB,
        cores=30_000,
        soft_cores=60_000,
        terms=Terms(Priority.HIGH, 3, 10**9, 10_000),
        frozen=True,
    )
    assert pod_limits.amounts({}) == Amounts()
    assert pod_limits.amounts({"frozen": "false"}) == Amounts()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory", "much"),
        ("memory", "50%"),
        ("cores", "101"),
        ("priority", "top"),
        ("frozen", "yes"),
        ("weight", ""),
    ],
)
def test_a_text_that_is_none_is_refused_by_its_name(name: str, text: str) -> None:
    with pytest.raises(ToolError, match=f"gpufence.io/{name} '{text}' refused") as refused:
        pod_limits.amounts({name: text})

    assert refused.value.status == 4


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({"memory": "1GiB", "cores": "10"}, Amounts(GIB, cores=10_000)),
        ({"memory": "8GiB", "cores": "60"}, Amounts(4 * GIB, cores=50_000)),
        ({"memory": "0", "cores": "0"}, Amounts(4 * GIB, cores=50_000)),
        ({"soft-cores": "90"}, Amounts(soft_cores=90_000)),
    ],
)
def test_nobody_gets_more_than_it_was_given(said: dict[str, str], held: Amounts) -> None:
    assert pod_limits.within(pod_limits.amounts(said), 4 * GIB, 50) == held


def test_where_no_core_limit_was_given_any_may_be_set() -> None:
    said = {"cores": "30"}

    assert pod_limits.within(pod_limits.amounts(said), 4 * GIB, 0) == Amounts(cores=30_000)


def test_only_what_was_said_is_taken_back() -> None:
    by_hand = Amounts(cores=20_000, terms=Terms(weight=5))
    said = pod_limits.amounts({"memory": "1GiB", "priority": "low", "frozen": "true"})

    both = pod_limits.edited(by_hand, ["memory", "priority", "frozen"], said)
    assert both == Amounts(GIB, cores=20_000, terms=Terms(Priority.LOW, 5), frozen=True)
    assert pod_limits.edited(both, ["memory", "priority", "frozen"], Amounts()) == by_hand
    changed = pod_limits.edited(both, ALL, pod_limits.amounts({"soft-cores": "40"}))
    assert changed == Amounts(soft_cores=40_000)
