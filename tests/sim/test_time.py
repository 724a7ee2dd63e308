"""Simulated time in one process: what events report, who waits for whom, which codes come back.

Each program runs once; every fact that it prints is a test of its own. Where the clock is virtual
the program takes no time, so durations are exact; they lose digits in the API's float alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Sim

OK = 0
INVALID_VALUE = 1
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
NOT_FOUND = 500
NOT_READY = 600
COOPERATIVE_TOO_LARGE = 720

FLOAT_US = 1e-3  # what a float of milliseconds cannot say, up to 16 ms

MIB = 1 << 20
COPY_US = 50 * MIB / 50e3  # 50 MiB at 50 GB/s
LOCAL_US = 50 * MIB / 2e6  # ... at 2 TB/s

STREAMS = {
    "query while busy": NOT_READY,
    "event while busy": NOT_READY,
    "ten of 150 us": 1500,
    "named 150 us": 150,
    "undeclared": 25,
    "query when done": OK,
    "small kernels overlap": 1000,
    "large kernels queue": 2000,
    "blocking stream": 5000,
    "non-blocking stream": 2000,
    "priority clamped": -5,
    "high priority ends": 1000,
    "low priority ends": 2000,
}

CODES = {
    "no grid": INVALID_VALUE,
    "grid y": INVALID_VALUE,
    "block": INVALID_VALUE,
    "block z": INVALID_VALUE,
    "shared": INVALID_VALUE,
    "set shared": OK,
    "shared after opting in": OK,
    "no parameters": INVALID_VALUE,
    "no function": INVALID_HANDLE,
    "packed parameters": OK,
    "both forms": INVALID_VALUE,
    "cooperative": OK,
    "cooperative too large": COOPERATIVE_TOO_LARGE,
    "function of another context": INVALID_HANDLE,
    "stream flags": INVALID_VALUE,
    "destroy legacy": INVALID_HANDLE,
    "destroy busy": OK,
    "synchronise the rest": OK,
    "callback flags": INVALID_VALUE,
    "unrecorded query": OK,
    "unrecorded synchronise": OK,
    "unrecorded elapsed": INVALID_HANDLE,
    "elapsed while busy": NOT_READY,
    "untimed elapsed": INVALID_HANDLE,
    "interprocess with timing": INVALID_VALUE,
    "event flags": INVALID_VALUE,
    "invented stream": INVALID_HANDLE,
    "destroyed stream": INVALID_HANDLE,
    "destroyed event": INVALID_HANDLE,
    "stream of an ended context": INVALID_HANDLE,
    "event of an ended context": INVALID_HANDLE,
    "no context": OK,
    "stream without context": INVALID_CONTEXT,
    "query without context": INVALID_CONTEXT,
}

WAITS = {
    "copied behind the function": 7,
    "function ran": 0,
    "callback status": OK,
    "held by the value": NOT_READY,
    "held by too small a value": NOT_READY,
    "released": OK,
    "odd address": INVALID_VALUE,
    "device still full": NOT_READY,
    "launched before blocking": 1021,
    "launched in the end": 1500,
}

COPIES = {
    "in": COPY_US,
    "out": COPY_US,
    "local": LOCAL_US,
    "fill": LOCAL_US,
    "tiny": 1,
    "copy beside a kernel": COPY_US,
    "pageable in returns at once": NOT_READY,
    "pageable out waits": OK,
    "device to device returns at once": NOT_READY,
    "device to host waits": OK,
    "wrong bytes": 0,
    "beyond the array": INVALID_VALUE,
    "filled": 0x1234,
    "beside the fill": 1,
    "no destination": INVALID_VALUE,
    "far beyond the end": INVALID_VALUE,
    "nothing": OK,
    "odd fill": INVALID_VALUE,
    "batch": OK,
    "batch with a bad one": INVALID_VALUE,
    "the bad one": 1,
    "batch in the legacy stream": INVALID_VALUE,
}

MODULES = {
    "missing": NOT_FOUND,
    "functions": 4,
    "third parameter at": 32,  # a 4-byte, then 24 bytes aligned to 8
    "third parameter bytes": 8,
    "fourth parameter": INVALID_VALUE,
    "name": 0,
    "variable bytes": 4096,
    "fill the variable": OK,
    "same handle": 1,
    "threads": 1024,
    "blocks of 256 per SM": 8,
    "lazy module costs": 0,
    "loaded by asking for it": 1,
    "loaded module costs": 0,
    "left after the unload": 0,
    "function of an unloaded module": INVALID_HANDLE,
    "unload twice": INVALID_HANDLE,
    "launch a kernel": OK,
    "launch its function": OK,
    "missing kernel": NOT_FOUND,
    "kernel of an unloaded library": INVALID_HANDLE,
    "no image": INVALID_VALUE,
    "no known image": 200,
    "empty image": 200,
    "broken text": 218,
    "no file": 301,
    "empty fat binary": 209,
    "fat binary": OK,
    "anything in it": OK,
    "at least 2 ms": 1,
    "kernel of no known image": 200,
    "module of no known image": 200,
    "compiler's text": OK,
    "functions in it": 1,
    "threads in it": 128,
    "variable in it": OK,
}

PROGRAMS: Mapping[str, tuple[Mapping[str, float], Mapping[str, str]]] = {
    "time_streams": (STREAMS, {"SPEED": "virtual", "KERNEL_NS": "25000"}),
    "time_codes": (CODES, {"SPEED": "virtual"}),
    "time_waits": (WAITS, {}),  # it sleeps, so its clock is the real one
    "time_copies": (COPIES, {"SPEED": "virtual"}),
    "time_modules": (MODULES, {"SPEED": "virtual"}),
}

# Facts that no real driver could be asked: it crashes on such handles, or cannot run such code.
WILD = {"time_codes": ("wild",), "time_modules": ("opaque",)}

Facts = Callable[[str], Any]


@pytest.fixture(scope="module")
def facts(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What a program printed on a machine of its own; run at the first request."""

    @cache
    def run(program: str) -> Any:  # noqa: ANN401 - JSON
        machine = tmp_path_factory.mktemp(program) / "machine"
        return (
            Sim(build, machine)
            .with_env(**PROGRAMS[program][1])
            .run(program, *WILD.get(program, ()))
            .facts
        )

    return run


@pytest.mark.parametrize(
    ("program", "fact"),
    [(program, fact) for program, (expected, _) in PROGRAMS.items() for fact in expected],
)
def test_programs_see_the_time_and_codes_of_a_gpu(facts: Facts, program: str, fact: str) -> None:
    assert facts(program)[fact] == pytest.approx(PROGRAMS[program][0][fact], abs=FLOAT_US)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_printed_fact_is_expected(facts: Facts, program: str) -> None:
    assert set(facts(program)) == set(PROGRAMS[program][0])


def test_a_marker_takes_its_stream_as_long_as_it_is_told(build: Path, tmp_path: Path) -> None:
    """Behind other work alone: of two around kernels, the one in an idle stream takes nothing."""
    slow = {"SPEED": "virtual", "KERNEL_NS": "25000", "EVENT_NS": "2500"}
    facts = Sim(build, tmp_path / "machine").with_env(**slow).run("time_streams").facts

    assert facts["ten of 150 us"] == pytest.approx(1502.5, abs=FLOAT_US)
    assert facts["undeclared"] == pytest.approx(27.5, abs=FLOAT_US)


def test_the_bus_is_as_fast_as_it_is_told(build: Path, tmp_path: Path) -> None:
    """For copies between host and device; within a device and in kernels nothing changes."""
    slow = {"SPEED": "virtual", "BUS_MB_PER_S": "25000"}
    facts = Sim(build, tmp_path / "machine").with_env(**slow).run("time_copies").facts

    assert facts["in"] == pytest.approx(2 * COPY_US, abs=FLOAT_US)
    assert facts["out"] == pytest.approx(2 * COPY_US, abs=FLOAT_US)
    assert facts["local"] == pytest.approx(LOCAL_US, abs=FLOAT_US)


def test_kernels_that_ran_are_told(build: Path, tmp_path: Path) -> None:
    """A line each: its begin, its end, its blocks."""
    told = tmp_path / "kernels"
    sim = Sim(build, tmp_path / "machine").with_env(SPEED="virtual", KERNELS=str(told))

    sim.run("event_behind_kernel", 20_000, 0)

    first, second = (
        list(map(int, line.split())) for line in told.read_text(encoding="utf-8").splitlines()
    )
    assert first[1] - first[0] == second[1] - second[0] == 20_000
    assert second[0] >= first[1]
    assert first[2] == second[2] > 0


WAITING = ("query", "launch", "record", "free")


@pytest.mark.parametrize("fill", ["launch", "record", "set"])
def test_what_waits_while_a_thread_waits_for_room_in_a_stream(
    build: Path, tmp_path: Path, fill: str
) -> None:
    """As on an H200: launches and records into all streams of the context, and its question."""
    facts = Sim(build, tmp_path / "machine").run("full_stream", fill).facts

    assert (facts.pop("put"), facts.pop("done")) == (1020, 1)
    assert facts == {name: -1 if name in WAITING else OK for name in facts}
