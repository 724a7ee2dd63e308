"""Graphs and capture of the simulated driver: durations, topology, memory, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Sim

OK = 0
INVALID_VALUE = 1
ILLEGAL_STATE = 401
NOT_SUPPORTED = 801
CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901
CAPTURE_MERGE = 902
CAPTURE_UNMATCHED = 903
CAPTURE_UNJOINED = 904
CAPTURE_ISOLATION = 905
CAPTURE_IMPLICIT = 906
CAPTURED_EVENT = 907
CAPTURE_WRONG_THREAD = 908
UPDATE_FAILURE = 910

FLOAT_US = 1e-3  # what a float of milliseconds cannot say, up to 16 ms
MIB = 1 << 20

# The diamond: 100 us, then 300 beside 200, then 50.
GRAPHS = {
    "nodes": 4,
    "edges": 4,
    "roots": 1,
    "dependents of the root": 2,
    "same edge twice": INVALID_VALUE,
    "unknown dependency": INVALID_VALUE,
    "cycle": INVALID_VALUE,
    "destroyed graph": INVALID_VALUE,
    "diamond": 450,
    "diamond three times": 3 * 450,
    "never beside itself": 2 * 450,
    "left disabled": 100 + 200 + 50,
    "tail set to 1 ms": 100 + 300 + 1000,
    "destroyed executable": INVALID_VALUE,
    "parameter read back": 2_000_000,
    "update": OK,
    "after the update": 2000 + 300 + 50,
    "update with another shape": UPDATE_FAILURE,
    "reason": 2,  # topology changed
    "destroy a node's graph": INVALID_VALUE,
    "find in clone": OK,
    "child alone": 450,
    "clone with both": 1000 + 450,
    "nothing before the launch": 0,
    "byte after the launch": 0x2A,
    "host calls": 2,
    "first launch": OK,
    "launch with memory still there": INVALID_VALUE,
    "second executable with memory": NOT_SUPPORTED,
    "clone with memory": NOT_SUPPORTED,
    "first launch of the next executable": OK,
    "launch that frees first": OK,
    "the program frees it": OK,
    "the program frees it twice": INVALID_VALUE,
    "reserved": 64 * MIB,
    "reserved after the graph": 64 * MIB,
    "reserved after the trim": 0,
    "kept by the executable": 0,
    "destroyed at last": 1,
}

CAPTURE = {
    "forked stream captures": 1,
    "end": OK,
    "captured nodes": 4,
    "forked stream after the end": 0,
    "fork and join": 100 + 400 + 100,
    "unjoined": CAPTURE_UNJOINED,
    "event of an ended capture": INVALID_VALUE,
    "end in the forked stream": CAPTURE_UNMATCHED,
    "end after that attempt": CAPTURE_INVALIDATED,
    "synchronise": CAPTURE_UNSUPPORTED,
    "launch afterwards": CAPTURE_INVALIDATED,
    "end after synchronise": CAPTURE_INVALIDATED,
    "the stream again": OK,
    "query of a captured event": CAPTURED_EVENT,
    "end after that query": CAPTURE_INVALIDATED,
    "query": CAPTURE_UNSUPPORTED,
    "end after query": CAPTURE_INVALIDATED,
    "synchronise the context": CAPTURE_UNSUPPORTED,
    "end after that": CAPTURE_INVALIDATED,
    "legacy launch beside a blocking stream": CAPTURE_IMPLICIT,
    "end after legacy": CAPTURE_INVALIDATED,
    "legacy launch beside a non-blocking one": OK,
    "end after harmless legacy": OK,
    "capture the legacy stream": CAPTURE_UNSUPPORTED,
    "begin twice": ILLEGAL_STATE,
    "wait for outside": CAPTURE_ISOLATION,
    "end after outside": CAPTURE_INVALIDATED,
    "end without begin": ILLEGAL_STATE,
    "merge two captures": CAPTURE_MERGE,
    "left after merge": CAPTURE_INVALIDATED,
    "right after merge": CAPTURE_INVALIDATED,
    "own global capture": CAPTURE_UNSUPPORTED,
    "own relaxed capture": OK,
    "relaxed thread": OK,
    "another thread's global capture": CAPTURE_UNSUPPORTED,
    "end of a spoilt one by another thread": CAPTURE_INVALIDATED,
    "another thread's local capture": OK,
    "end by another thread": CAPTURE_WRONG_THREAD,
    "nodes of everything": 5,
    "first node": 10,  # an allocation
    "before the launch": 0,
    "after the launch": 77,
}

PROGRAMS = {"time_graphs": GRAPHS, "time_capture": CAPTURE}

Facts = Callable[[str], Any]


@pytest.fixture(scope="module")
def facts(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What a program printed on a machine of its own; run at the first request."""

    @cache
    def run(program: str) -> Any:  # noqa: ANN401 - JSON
        machine = tmp_path_factory.mktemp(program) / "machine"
        return Sim(build, machine).with_env(SPEED="virtual").run(program).facts

    return run


@pytest.mark.parametrize(
    ("program", "fact"),
    [(program, fact) for program, expected in PROGRAMS.items() for fact in expected],
)
def test_graphs_and_captures_behave_as_on_a_gpu(facts: Facts, program: str, fact: str) -> None:
    assert facts(program)[fact] == pytest.approx(PROGRAMS[program][fact], abs=FLOAT_US)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_printed_fact_is_expected(facts: Facts, program: str) -> None:
    assert set(facts(program)) == set(PROGRAMS[program])
