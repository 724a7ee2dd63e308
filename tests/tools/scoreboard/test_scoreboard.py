"""The scoreboard says of each way what it is of the bare driver's, and of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from colocation.scenes import Tenant
from colocation.ways import BARE, Machine
from colocation.ways import environment as of_a_scene
from scoreboard import command, measure
from scoreboard.figures import FIGURES, fairness, ratio
from scoreboard.measure import Bench, NotMeasured, Told
from scoreboard.ways_of import Limits, all_ways, environment, limiter_of


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Somebody's limiter."""
    path = tmp_path / "libother.so"
    path.touch()
    return path


def test_four_that_have_as_much_are_fair_and_one_that_has_all_is_not() -> None:
    assert fairness([25, 25, 25, 25]) == 1
    assert fairness([100, 0, 0, 0]) == 0.25
    assert fairness([0, 0]) == 0


def test_nothing_is_a_part_of_a_bare_figure_that_is_none() -> None:
    assert ratio(2.0, 4.0) == 0.5
    assert ratio(2.0, 0.0) is None
    assert ratio(2.0, None) is None


def test_a_limiters_variables_are_filled_in_and_those_of_no_limit_left_away(
    tmp_path: Path, library: Path
) -> None:
    way = limiter_of(f"other={library},MEMORY={{memory_mib}}m,SM={{cores}},SHARED={{state}}/x,ON=1")
    machine = Machine(tmp_path)

    memory_alone = environment(machine, way, Limits(), tmp_path / "state")
    both = environment(machine, way, Limits(cores="99"), tmp_path / "state")

    expected = {"MEMORY": "4096m", "SHARED": f"{tmp_path}/state/x", "ON": "1"}
    assert {name: memory_alone.get(name) for name in expected} == expected
    assert "SM" not in memory_alone
    assert (both["SM"], both["LD_PRELOAD"]) == ("99", str(library))


def test_in_a_scene_a_limiter_limits_each_tenants_time_and_no_memory(
    tmp_path: Path, library: Path
) -> None:
    way = limiter_of(f"other={library},MEMORY={{memory_mib}}m,SM={{cores}},SHARED={{state}}/x")

    env = of_a_scene(Machine(tmp_path), way, tmp_path, 1, Tenant("saturate 500", 30))

    assert (env["SM"], env["SHARED"]) == ("30", f"{tmp_path}/state1/x")
    assert "MEMORY" not in env
    assert "GPUFENCE_CORE_LIMIT" not in env


@pytest.mark.parametrize("text", ["other", "=LIB", "other=LIB,MEMORY", "other=nowhere"])
def test_a_limiter_that_cannot_be_is_wrong_usage(text: str, library: Path) -> None:
    assert command.main(["--limiter", text.replace("LIB", str(library))]) == 2


def test_a_way_that_nobody_knows_is_wrong_usage() -> None:
    assert command.main(["--way", "bogus"]) == 2


def test_bare_is_always_among_the_ways(tmp_path: Path) -> None:
    assert [way.name for way in all_ways(tmp_path, [], ["ours"])] == ["bare", "ours"]


def test_every_figure_is_measured_by_its_part_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guest = {"total_mib": 8192, "free_mib": 7680, "granted_mib": 3584, "nvml_mib": 8192}
    scene = [{"busy": 30.0, "rate": 25.0, "p50_ms": 1.0, "p99_ms": 2.0}] * 4
    timed = {"ours_median_ns": 4.0, "direct_median_ns": 2.0}
    calls = {"calls": dict.fromkeys(measure.CALLS, timed)}
    monkeypatch.setattr(measure, "_guest", lambda *_: {**guest, "begun": [0]})
    monkeypatch.setattr(measure, "_beside", lambda *_: (1024, 3584))
    monkeypatch.setattr(measure, "_run", lambda *_: calls)
    monkeypatch.setattr(measure, "compile_program", lambda *_: tmp_path)
    monkeypatch.setattr(measure, "_scene", lambda _, __, *tenants: scene[: len(tenants)])
    bench = Bench(Machine(tmp_path), None, tmp_path, 1.0)  # type: ignore[arg-type]

    told = {part: each(bench, BARE).values for part, each in measure.MEASURES.items()}

    by_part = {part: {f.name for f in FIGURES if f.part == part} for part in told}
    assert {part: {*values} for part, values in told.items()} == by_part
    assert told["memory"]["held by one process"] == 1.0  # with a context of 512 MiB
    assert told["memory"]["held by two processes"] == 0.5
    assert told["calls"]["stream-ordered allocations"] == 0.25e9


def test_a_soft_share_is_measured_alone_beside_its_like_and_beside_a_hard_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    busy = {(80,): 60.0, (80, 80): 45.0, (80, None): 27.0}

    def scene(_: Bench, __: object, *tenants: Tenant) -> list[dict[str, float]]:
        figure = busy.get(tuple(each.soft for each in tenants), 0.0)
        return [{"busy": figure, "rate": figure}] * len(tenants)

    monkeypatch.setattr(measure, "_scene", scene)
    bench = Bench(Machine(tmp_path), None, tmp_path, 1.0)  # type: ignore[arg-type]

    values = measure.time(bench, BARE).values

    assert {name: part for name, part in values.items() if "soft" in name} == {
        "GPU time at 30 %, soft 80, alone": 0.75,
        "two at 30 %, soft 80, together": 0.9,
        "at 30 %, soft 80, beside 70 %": 0.9,
    }


def body_of(told: dict[str, Told], tmp_path: Path) -> dict[str, Any]:
    left_out = [{"part": "tokens", "way": "ours", "why": "needs a GPU"}]
    return command._body(Machine(tmp_path), told, left_out, 1.0)


def test_a_figure_is_compared_with_the_bare_drivers_own(tmp_path: Path) -> None:
    told = {
        "bare": Told({"cuMemGetInfo": 100.0, "cuLaunchKernel": 10.0}),
        "ours": Told({"cuMemGetInfo": 50.0, "cuLaunchKernel": 30.0}, {"cuLaunchKernel": 1.5}),
    }

    body = body_of(told, tmp_path)

    of_bare = {row["name"]: row["of_bare"] for row in body["figures"] if row["values"]}
    assert of_bare == {
        "cuLaunchKernel": {"bare": 1.0, "ours": 1.5},  # told in the same process
        "cuMemGetInfo": {"bare": 1.0, "ours": 0.5},
    }
    table = command.table(body)
    assert "cuMemGetInfo" in table
    assert "held by one process" not in table
    assert "left out: tokens, ours: needs a GPU" in table


def test_what_could_not_be_measured_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> Told:
        raise NotMeasured("it crashed")

    monkeypatch.setitem(command.MEASURES, "memory", fails)  # type: ignore[arg-type]
    bench = Bench(Machine(tmp_path), None, tmp_path, 1.0)  # type: ignore[arg-type]

    assert command._one(bench, "memory", BARE, Told({})) == "it crashed"


def test_parts_are_measured_in_the_order_given_so_that_a_budget_gets_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []
    for part in command.MEASURES:
        told = lambda _, way, part=part: order.append(f"{part} {way.name}") or Told({})  # noqa: E731
        monkeypatch.setitem(command.MEASURES, part, told)  # type: ignore[arg-type]
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libgpufence.so").touch()

    command.main(["--build", str(tmp_path), "--way", "ours", "--only", "tokens", "memory"])

    assert order == ["tokens bare", "tokens ours", "memory bare", "memory ours"]
