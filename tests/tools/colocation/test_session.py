"""Scenes are run to their end whatever their programs do, and nothing of them is left behind."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from colocation import session as sessions
from colocation.command import main, run_lines
from colocation.scenes import SCENES, Scene, Tenant, random_pair
from colocation.session import Line, Session, lines_of, turns_of
from colocation.ways import (
    BARE,
    Machine,
    Way,
    build_of,
    environment,
    unknown_settings,
    ways,
)

FAKE = Path(__file__).with_name("fake_program.py")
SECONDS = 0.05


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A folder, and patience that suits programs which do nothing."""
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(sessions, "SETTLE_S", 0.0)
    monkeypatch.setattr(sessions, "LATE_S", 2.0)
    (tmp_path / "log").touch()
    return Machine(tmp_path)


@pytest.fixture
def session(machine: Machine) -> Iterator[Session]:
    """Fake programs, ended behind the test."""
    opened = Session(machine, None, [sys.executable, str(FAKE)])
    yield opened
    opened.close()


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build whose library knows priorities and no weights."""
    library = tmp_path / "build" / "lib" / "libgpufence.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0GPUFENCE_CORE_SOFT_LIMIT\0GPUFENCE_PRIORITY\0")
    return tmp_path / "build"


def line(*programs: str, way: Way = BARE, name: str = "a scene") -> Line:
    """A scene of such programs, each at 30 %."""
    return Line(Scene(name, tuple(Tenant(each, 30) for each in programs)), way, SECONDS)


def steps(machine: Machine, step: str) -> list[list[str]]:
    """The lines of the log that tell of a step."""
    log = (machine.folder / "log").read_text(encoding="utf-8").splitlines()
    return [words for words in map(str.split, log) if words[1] == step]


def runs(pid: int) -> bool:
    """Whether such a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


def is_soon_gone(pid: int) -> bool:
    """A killed process takes the kernel a moment."""
    deadline = time.monotonic() + 10
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


def test_every_tenant_tells_its_figures(session: Session) -> None:
    scene = Scene("two", (Tenant("fine", 30), Tenant("fine", 30, delay_s=0.02)))

    figures = session.measure(Line(scene, BARE, SECONDS), None)

    assert [one["delay"] for one in figures["tenants"]] == [0, 0.02]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("dies", "dies (1) ended: status 1; no memory left"),
        ("silent", "silent (1) did not answer in time"),
        ("babbles", "babbles (1) said 'hello' instead of 'ready'"),
    ],
)
def test_a_program_that_fails_makes_its_line_an_error(
    session: Session, machine: Machine, kind: str, why: str
) -> None:
    failed = session.measure(line("fine", kind), None)
    next_one = session.measure(line("fine"), None)

    assert why in failed["error"]
    assert next_one["tenants"][0]["rate"] == 1
    assert all(is_soon_gone(int(words[-1])) for words in steps(machine, "loaded"))


def test_what_a_hanging_program_started_ends_with_it(session: Session, machine: Machine) -> None:
    session.measure(line("silent"), None)

    ((_, _, child, _),) = steps(machine, "child")
    assert is_soon_gone(int(child))


def test_a_program_that_does_not_exist_makes_its_line_an_error(machine: Machine) -> None:
    session = Session(machine, None, [str(machine.folder / "nothing")])

    figures = session.measure(line("fine"), line("fine"))

    assert "fine (0) does not start" in figures["error"]
    session.close()


def test_the_next_scene_is_loaded_before_this_one_goes_and_prepares_after(
    session: Session, machine: Machine
) -> None:
    first, second = line("fine", name="first"), line("fine", "fine", name="second")

    session.measure(first, second)
    assert len(steps(machine, "loaded")) == 3
    assert len(steps(machine, "prepares")) == 1
    session.measure(second, None)

    log = (machine.folder / "log").read_text(encoding="utf-8").splitlines()
    first_goes = next(place for place, text in enumerate(log) if " goes " in text)
    assert sum(" loaded " in text for text in log[:first_goes]) == 3
    assert len(steps(machine, "loaded")) == 3
    assert len(steps(machine, "prepares")) == 3


def test_programs_loaded_ahead_for_nothing_are_ended(session: Session, machine: Machine) -> None:
    session.measure(line("fine", name="first"), line("fine", name="second"))
    session.measure(line("fine", name="third"), line("fine", name="fourth"))
    session.close()

    loaded = [int(words[-1]) for words in steps(machine, "loaded")]
    assert len(loaded) == 4
    assert all(is_soon_gone(pid) for pid in loaded)


def test_one_that_fails_while_it_is_loaded_ahead_fails_in_its_own_turn(session: Session) -> None:
    first = session.measure(line("fine", name="first"), line("dies", name="second"))
    second = session.measure(line("dies", name="second"), None)

    assert "tenants" in first
    assert "no memory left" in second["error"]


def test_tenants_of_ours_meet_in_one_node_folder_and_have_their_own_state(
    session: Session, build: Path
) -> None:
    ours = Way("ours", build, settings=(("GPUFENCE_CORE_BURST", "50ms"),))
    tenants = (Tenant("fine", 30, soft=80, priority="high", weight=2), Tenant("fine", 70))

    figures = session.measure(Line(Scene("two", tenants), ours, SECONDS), None)
    first, second = (one["settings"] for one in figures["tenants"])

    assert first["GPUFENCE_NODE_DIR"] == second["GPUFENCE_NODE_DIR"]
    assert first["GPUFENCE_STATE_DIR"] != second["GPUFENCE_STATE_DIR"]
    assert first["GPUFENCE_CONTAINER"] != second["GPUFENCE_CONTAINER"]
    assert (first["GPUFENCE_CORE_LIMIT"], second["GPUFENCE_CORE_LIMIT"]) == ("30", "70")
    assert (first["GPUFENCE_CORE_SOFT_LIMIT"], first["GPUFENCE_PRIORITY"]) == ("80", "high")
    assert {"GPUFENCE_CORE_SOFT_LIMIT", "GPUFENCE_PRIORITY"}.isdisjoint(second)
    assert first["GPUFENCE_CORE_BURST"] == second["GPUFENCE_CORE_BURST"] == "50ms"
    # A library refuses variables from after its time: the scene is run without them.
    assert "GPUFENCE_WEIGHT" not in first
    assert unknown_settings(ours, tenants) == ["GPUFENCE_WEIGHT"]


def test_mps_with_threads_holds_each_tenant_to_its_limit(machine: Machine) -> None:
    (way,) = ways([], ["mps-threads"])
    (whole,) = ways([], ["mps"])
    threads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

    assert environment(machine, way, machine.folder, 0, Tenant("train", 30))[threads] == "30"
    assert threads not in environment(machine, whole, machine.folder, 0, Tenant("train", 30))


def test_mps_with_priorities_has_the_low_one_behind_the_others(machine: Machine) -> None:
    (way,) = ways([], ["mps-priority"])
    low, high = (Tenant("train", 30, priority=priority) for priority in ("low", "high"))
    variable = "CUDA_MPS_CLIENT_PRIORITY"

    assert environment(machine, way, machine.folder, 0, low)[variable] == "1"
    assert variable not in environment(machine, way, machine.folder, 1, high)
    assert "mps-priority" not in [each.name for each in ways([], [])]


def test_our_library_in_mode_mps_leaves_the_limit_to_mps(machine: Machine, build: Path) -> None:
    ours = build_of(f"new={build},GPUFENCE_LOG_LEVEL=info")
    (way,) = ways([ours], ["ours+mps-threads"])
    tenant = Tenant("train", 30, soft=80, priority="high")

    found = environment(machine, way, machine.folder, 0, tenant)

    assert (way.name, way.mps) == ("new+mps-threads", True)
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == found["GPUFENCE_CORE_LIMIT"] == "30"
    assert found["GPUFENCE_CORE_MODE"] == "mps"
    assert found["GPUFENCE_LOG_LEVEL"] == "info"
    # The library refuses these beside mode mps: the scene is run without them.
    left_out = ["GPUFENCE_CORE_SOFT_LIMIT", "GPUFENCE_PRIORITY"]
    assert {*left_out}.isdisjoint(found)
    assert unknown_settings(way, [tenant]) == left_out
    assert "new+mps-threads" not in [each.name for each in ways([ours], [])]


def test_a_bare_program_has_nothing_of_ours(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFENCE_CORE_LIMIT", "10")

    figures = session.measure(line("fine"), None)

    assert figures["tenants"][0]["settings"] == {}


def test_a_load_is_the_rate_that_it_was_alone(session: Session) -> None:
    session._remember(line("serve --load 20"), [{"asked": 97.5}])

    assert session._words("serve --load 20") == ["serve", "--rate", "97.5"]
    assert session._words("serve --load 30") == ["serve", "--load", "30"]


def test_programs_are_not_loaded_before_their_rate_is_known(
    session: Session, machine: Machine
) -> None:
    session.measure(line("fine", name="first"), line("fine --load 20", name="second"))

    assert len(steps(machine, "loaded")) == 1


def test_a_job_over_two_gpus_is_a_process_for_each(session: Session, machine: Machine) -> None:
    machine = Machine(machine.folder, gpus=2)
    session.machine = machine
    scene = Scene("two GPUs", (Tenant("fine", 50),), gpus=2)

    figures = session.measure(Line(scene, BARE, SECONDS), None)

    words = figures["tenants"][0]["words"]
    assert words[1:3] == ["--ranks", "2"]
    assert words[-2:] == ["--rank", "0"]
    assert len(steps(machine, "goes")) == 2
    assert Session(Machine(machine.folder), None).why_not(Line(scene, BARE, 1)) == "needs 2 GPUs"


def measured(
    session: Session, lines: list[Line], budget: float | None, out: Path, rounds: int = 1
) -> Any:  # noqa: ANN401
    """The file that a session leaves."""
    options = argparse.Namespace(budget=budget, output=out, rounds=rounds)
    run_lines(session, lines, {"lines": [], "left_out": []}, options)
    return json.loads(out.read_text(encoding="utf-8"))


def test_the_file_is_written_after_each_line(session: Session, tmp_path: Path) -> None:
    lines = [line("fine", name="first"), line("dies", name="second"), line("fine", name="third")]

    body = measured(session, lines, None, tmp_path / "out.json")

    assert [one["scene"] for one in body["lines"]] == ["first", "second", "third"]
    assert ["error" in one for one in body["lines"]] == [False, True, False]


def test_no_line_begins_that_would_end_behind_the_budget(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colocation.command.OVERHEAD_S", 0.0)
    long = Line(Scene("long", (Tenant("fine", 30),)), BARE, 30.0)

    body = measured(session, [line("fine"), long, line("fine")], 20.0, tmp_path / "out.json")

    assert [one["scene"] for one in body["lines"]] == ["a scene"]
    assert [one["why"] for one in body["left_out"]] == ["budget", "budget"]


def test_ways_in_turns_load_their_programs_once_and_tell_the_middle_of_the_rounds(
    session: Session, machine: Machine, build: Path, tmp_path: Path
) -> None:
    ours = Way("ours", build)
    lines = [line("fine", name="alone"), line("fine", "fine"), line("fine", "fine", way=ours)]

    body = measured(session, lines, None, tmp_path / "out.json", rounds=3)

    alone, bare, fenced = body["lines"]
    assert "rounds" not in alone
    assert (bare["way"], fenced["way"], bare["rounds"]) == ("bare", "ours", 3)
    for one in (*bare["tenants"], *fenced["tenants"]):
        assert one["rate"] == 2.0  # the second of three: its number
        assert [each["rate"] for each in one["by_round"]] == [1.0, 2.0, 3.0]
    assert len(steps(machine, "loaded")) == 1 + 4
    pids = [words[-1] for words in steps(machine, "goes")][1:]
    turns = [{*pids[at : at + 2]} for at in range(0, len(pids), 2)]
    assert turns == 3 * [turns[0], turns[1]]
    assert turns[0].isdisjoint(turns[1])
    assert all(is_soon_gone(int(words[-1])) for words in steps(machine, "loaded"))


def test_a_program_that_fails_in_turns_makes_all_ways_of_its_scene_errors(
    session: Session, tmp_path: Path, build: Path
) -> None:
    lines = [line("fine", "dies"), line("fine", "dies", way=Way("ours", build)), line("fine")]

    body = measured(session, lines, None, tmp_path / "out.json", rounds=2)

    assert ["error" in one for one in body["lines"]] == [True, True, False]
    assert "no memory left" in body["lines"][1]["error"]


def test_what_runs_in_turns_is_one_scene_without_mps_and_kernels(build: Path) -> None:
    ours, over_mps = Way("ours", build), Way("mps", mps=True)
    one, kernels = line("fine").scene, Scene("kernels", (Tenant("saturate 500", 30),))
    ways_of_two = [line("fine", way=way, name="two") for way in (BARE, ours, over_mps)]
    lines = [Line(one, BARE, 1), *ways_of_two, Line(kernels, BARE, 1), Line(kernels, ours, 1)]

    groups = turns_of(lines)

    assert [len(group) for group in groups] == [1, 2, 1, 1, 1]


def test_no_turns_begin_that_would_end_behind_the_budget(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Path
) -> None:
    monkeypatch.setattr("colocation.command.OVERHEAD_S", 0.0)
    lines = [line("fine"), line("fine", way=Way("ours", build))]

    body = measured(session, lines, 2 * SECONDS * 3.5, tmp_path / "out.json", rounds=4)

    assert body["lines"] == []
    assert len(body["left_out"]) == 2


def test_every_program_is_measured_alone_once_and_before_its_first_scene() -> None:
    chosen = [scene for scene in SCENES if "serve" in scene.name or "train" in scene.name]
    lines = lines_of(chosen, [BARE], 4.0)

    names = [one.scene.name for one in lines]
    assert len({*names}) == len(names)
    for place, one in enumerate(lines):
        for tenant in one.scene.tenants:
            assert f"alone: {tenant.reference}" in names[: place + 1]


def test_a_scene_of_one_is_measured_with_our_library_alone(build: Path) -> None:
    scene = Scene("one", (Tenant("train", 50),))
    every = ways([Way("ours", build)], [])

    lines = lines_of([scene, random_pair(1)], every, 4.0)

    assert [one.way.name for one in lines if one.scene.name == "one"] == ["ours"]
    pair = [one.way.name for one in lines if one.scene.name == "pair:1"]
    assert pair == ["bare", "ours", "mps", "ours+mps"]


def test_builds_are_compared_under_their_names() -> None:
    old, new = build_of("old=/a"), build_of("new=/b,GPUFENCE_CORE_BURST=9ms")

    assert [way.name for way in ways([old, new], ["ours", "mps"])] == ["old", "new", "mps"]
    assert [way.name for way in ways([old, new], ["new+mps"])] == ["new+mps"]
    assert new.settings == (("GPUFENCE_CORE_BURST", "9ms"),)
    assert build_of("/a").name == "ours"
    assert "mps-threads" not in [way.name for way in ways([old], [])]
    with pytest.raises(ValueError, match="no way is called 'mine'"):
        ways([old], ["mine"])
    with pytest.raises(ValueError, match="VARIABLE=VALUE"):
        build_of("/a,GPUFENCE_CORE_BURST")


def test_the_command_says_what_it_does_not_understand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scene", "nothing"]) == 2
    assert "no scene is called 'nothing'" in capsys.readouterr().err
    assert main(["--ours", "missing", "--scene", "train at 50", "--way", "ours"]) == 3
    assert "holds no library" in capsys.readouterr().err
