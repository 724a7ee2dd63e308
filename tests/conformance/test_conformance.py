"""The simulator answers as real GPUs did: every conformance program against the recorded facts.

tests/conformance/facts/<gpu>-<driver>.json was recorded on hardware by tests/gpu/run.py. A
difference fails here unless lib/sim/deviations.toml names it with a reason, and a deviation that no
longer differs fails too. With the library in front, no fact may change at all.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.machine import REPO, Sim

sys.path.insert(0, str(REPO / "tests" / "conformance"))

import harness

RECORDED = REPO / "tests" / "conformance" / "facts" / "h200-580.json"
DEVIATIONS = REPO / "lib" / "sim" / "deviations.toml"
PROGRAMS = harness.program_names()
# A watched fact may be a matter of time, and tests run beside each other on few cores: a difference
# counts when it shows in every one of this many runs.
ATTEMPTS = 3


def run_on(sim: Sim, program: str, state: Path, *, preload: bool) -> harness.Outcome:
    """One run on a fresh machine."""
    env = Sim(sim.build, state, sim.env).environment(preload, {})
    return harness.run_program(sim.build / "tests" / program, env, 120)


def persistent(compare: Callable[[int], list[harness.Difference]]) -> list[harness.Difference]:
    """What every attempt finds different, both sides of it asked anew."""
    remaining = compare(0)
    for attempt in range(1, ATTEMPTS):
        if not remaining:
            break
        still = {difference.fact for difference in compare(attempt)}
        remaining = [difference for difference in remaining if difference.fact in still]
    return remaining


@pytest.fixture(scope="module")
def bare(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], harness.Outcome]:
    """Runs a program without the library, once for all tests that need its facts."""

    @functools.cache
    def run(program: str) -> harness.Outcome:
        state = tmp_path_factory.mktemp(program) / "machine"
        outcome = run_on(Sim(build, state), program, state, preload=False)
        assert outcome.status == "ok", f"{program}: {outcome.status}\n{outcome.stderr}"
        return outcome

    return run


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_simulator_tells_the_facts_that_hardware_told(
    sim: Sim, program: str, tmp_path: Path, bare: Callable[[str], harness.Outcome]
) -> None:
    recorded = harness.load_facts(RECORDED).get(program) if RECORDED.exists() else None
    if recorded is None:
        pytest.skip(f"{program} is not in {RECORDED.name} yet: run tests/gpu/run.py on a GPU")
    deviations = harness.load_deviations(DEVIATIONS)

    def compare(attempt: int) -> list[harness.Difference]:
        state = tmp_path / f"{attempt}"
        done = bare(program) if attempt == 0 else run_on(sim, program, state, preload=False)
        return harness.differences(recorded, done.facts)

    found = persistent(compare)
    unexplained = harness.unexplained(program, found, deviations)
    told = harness.differences(recorded, bare(program).facts)
    stale = [
        deviation
        for deviation in deviations
        if deviation.program == program
        and not any(deviation.covers(program, difference.fact) for difference in told)
    ]

    assert not unexplained, "\n".join(map(str, unexplained))
    assert not stale, f"these no longer differ, take them out: {stale}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_fact_changes_with_the_library_in_front(
    sim: Sim, program: str, tmp_path: Path, bare: Callable[[str], harness.Outcome]
) -> None:
    def compare(attempt: int) -> list[harness.Difference]:
        state = tmp_path / f"bare{attempt}"
        expected = bare(program) if attempt == 0 else run_on(sim, program, state, preload=False)
        ours = run_on(sim, program, tmp_path / f"{attempt}", preload=True)
        assert ours.status == "ok", f"{program}: {ours.status}\n{ours.stderr}"
        return harness.differences(expected.facts, ours.facts)

    found = persistent(compare)

    assert not found, "\n".join(map(str, found))


def test_every_deviation_names_a_program_and_a_recorded_fact() -> None:
    if not RECORDED.exists():
        pytest.skip(f"{RECORDED.name} is not recorded yet: run tests/gpu/run.py on a GPU")
    recorded = harness.load_facts(RECORDED)

    idle = [
        deviation
        for deviation in harness.load_deviations(DEVIATIONS)
        if not any(
            deviation.covers(program, fact) for program, facts in recorded.items() for fact in facts
        )
    ]

    assert not idle


def test_what_a_dying_program_said_is_still_read() -> None:
    cut_off = '{\n"program": "x",\n"first.code": "SUCCESS",\n"~bytes": 12,\n"second": fal'

    facts, measured = harness.parse(cut_off)

    assert facts == {"first.code": "SUCCESS"}
    assert measured == {"bytes": 12}


def test_a_fact_that_one_side_lacks_is_a_difference() -> None:
    found = harness.differences({"a": 1, "b": True}, {"a": 1, "c": "x"})

    assert [str(difference) for difference in found] == [
        "b: expected True, got None",
        "c: expected None, got 'x'",
    ]


def test_a_deviation_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deviations.toml"
    file.write_text('[[deviation]]\nprogram = "vmm"\nfact = "life.*"\nreason = ""\n')

    with pytest.raises(ValueError, match="needs program, fact and reason"):
        harness.load_deviations(file)


def test_a_deviation_covers_exactly_its_pattern(tmp_path: Path) -> None:
    file = tmp_path / "deviations.toml"
    file.write_text(
        '# why\n[[deviation]]\nprogram = "vmm"\nfact = "life.*"\n'
        'reason = "told \\"so\\""  # really\n'
    )
    (deviation,) = harness.load_deviations(file)

    assert deviation.reason == 'told "so"'
    assert deviation.covers("vmm", "life.unmap")
    assert not deviation.covers("vmm", "unmap.twice")
    assert not deviation.covers("arrays", "life.unmap")
