"""The table of scenes holds together, and names find what they mean."""

from __future__ import annotations

import pytest
from colocation.scenes import SCENES, WHOLE, Scene, Tenant, find, random_pair, random_single
from colocation.workloads.arrivals import BURST_S, arrivals
from colocation.workloads.programs import options_of

WORDS_OF_PLANS = {"saturate": 2, "bursts": 4, "pieces": 4, "random": 2}
EVERY = [*SCENES, *(random_pair(seed) for seed in range(5)), *map(random_single, range(5))]


@pytest.mark.parametrize("scene", EVERY, ids=lambda scene: scene.name)
def test_every_program_of_a_scene_can_be_started(scene: Scene) -> None:
    for tenant in scene.tenants:
        words = tenant.program.split()
        if tenant.on_kernels:
            assert len(words) == WORDS_OF_PLANS[tenant.kind]
        elif tenant.kind == "ddp":
            options_of([*words, "--rank", "0", "--ranks", "2", "--meet", "file"])
        else:
            options_of(words)


@pytest.mark.parametrize("scene", EVERY, ids=lambda scene: scene.name)
def test_every_promise_is_about_a_tenant_or_all(scene: Scene) -> None:
    places = {None, WHOLE, *range(len(scene.tenants))}
    phases = {phase.name for phase in scene.phases}
    known = {
        "rate",
        "share",
        "busy",
        "of_alone",
        "p99_ms",
        "first_ms",
        "second_most",
        "ran",
        *phases,
    }

    assert {promise.tenant for promise in scene.promises} <= places
    assert {promise.figure for promise in scene.promises} <= known
    assert {promise.relation for promise in scene.promises} <= {"most", "least", "near"}


def test_training_launches_kernel_by_kernel_unless_it_is_captured() -> None:
    assert not options_of(["train"])[1].captured
    assert options_of(["train", "--captured"])[1].captured


def test_hard_limits_fit_on_a_gpu() -> None:
    for scene in EVERY:
        assert sum(tenant.limit for tenant in scene.tenants) <= 100


def test_names_are_not_used_twice() -> None:
    names = [scene.name for scene in SCENES]

    assert len({*names}) == len(names)


def test_a_whole_name_finds_one_scene_and_a_part_all_that_have_it() -> None:
    assert [one.name for one in find(["serve+train 50/50"])] == ["serve+train 50/50"]
    assert len(find(["saturate 30/70"])) == 3
    assert len(find(["saturate 30/70", "saturate 30/70 5 ms"])) == 3


def test_seeds_find_random_scenes() -> None:
    assert [one.name for one in find(["pair:7-9", "single:3"])] == [
        "pair:7",
        "pair:8",
        "pair:9",
        "single:3",
    ]
    assert find(["pair:7"]) == [random_pair(7)]


def test_random_pairs_differ_in_programs_and_limits() -> None:
    pairs = [random_pair(seed) for seed in range(20)]

    programs = [tenant.program for one in pairs for tenant in one.tenants]
    assert len({*programs}) == 40
    assert {one.tenants[0].limit for one in pairs} == {40, 60}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no scene is called 'serv!'"):
        find(["serv!"])


def test_a_pause_does_not_make_another_program_alone() -> None:
    assert Tenant("serve --pause 10", 50).reference == "serve"
    assert Tenant("serve --load 20", 50).reference == "serve --load 20"


def test_the_same_seed_brings_the_same_requests() -> None:
    assert arrivals(60, 4, 0, 7) == arrivals(60, 4, 0, 7)
    assert arrivals(60, 4, 0, 7) != arrivals(60, 4, 0, 8)


def test_requests_come_sorted_and_as_often_as_asked() -> None:
    times = [at for at, _ in arrivals(60, 100, 0, 7)]

    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 100
    # A Poisson count of 6,000 has a deviation of 77; five of them.
    assert abs(len(times) - 6000) < 390


def test_the_first_request_after_each_pause_is_known() -> None:
    requests = arrivals(60, 24, 10, 7)

    assert [at for at, is_first in requests if is_first] == [10 + BURST_S, 2 * (10 + BURST_S)]
    assert all(at % (10 + BURST_S) < BURST_S for at, _ in requests)
