"""Measures the figures of one way at a time, with the other benches' programs and scenes.

Must not know how figures are compared or printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from call_overhead import compile_program
from colocation.kernels import REPO
from colocation.scenes import Scene, Tenant
from colocation.session import Line, Session
from colocation.ways import BARE, Machine, Way

from .figures import LIMIT_MIB, fairness
from .ways_of import Limits, environment

GUEST = REPO / "tests" / "release" / "guest.py"
GUEST_S, CALLS_S = 60.0, 60.0
ROUNDS, SCALE = 15, 0.5  # of call_overhead: some seconds
UNREADABLE = "4x"
POOL_PAIR, ALLOCATIONS = "cuMemAllocAsync+cuMemFreeAsync 2 MiB", "stream-ordered allocations"
CALLS = ("cuLaunchKernel", "cuMemAlloc+cuMemFree 2 MiB", POOL_PAIR, "cuMemGetInfo")
AT_A_TIME = (500, 1_000, 5_000, 25_000)  # microseconds of the four tenants' kernels

Values = dict[str, float]


@dataclass(slots=True)
class Told:
    """Figures of one way; `of_bare` where the bare driver was measured in the same process."""

    values: Values
    of_bare: Values = field(default_factory=dict)


class NotMeasured(Exception):
    """A figure could not be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all ways are measured with."""

    machine: Machine
    session: Session
    build: Path
    seconds: float

    def fresh(self) -> Path:
        """A folder for a container of its own."""
        return Path(tempfile.mkdtemp(dir=self.machine.folder))


def memory(bench: Bench, way: Way) -> Told:
    """What a limit of 4 GiB lets one process, by several ways in, and two processes have.

    Contexts count with what was granted, as large as the bare driver says that they are.
    """
    limits = Limits()
    told = {
        word: _guest(bench, way, limits, bench.fresh(), word)
        for word in ("linked", "dlsym", "getproc", "threads")
    }
    together, after = _beside(bench, way, limits)
    unreadable = _guest(bench, way, Limits(memory_mib=UNREADABLE), bench.fresh(), "linked")
    bare = told["linked"] if way is BARE else _guest(bench, BARE, limits, bench.fresh(), "linked")
    context = bare["total_mib"] - bare["free_mib"]
    held = {word: (each["granted_mib"] + context) / LIMIT_MIB for word, each in told.items()}
    return Told(
        {
            "size that CUDA shows": told["linked"]["total_mib"] / LIMIT_MIB,
            "size that NVML shows": told["linked"]["nvml_mib"] / LIMIT_MIB,
            "held by one process": held["linked"],
            "held, found by dlsym": held["dlsym"],
            "held, found by cuGetProcAddress": held["getproc"],
            "held by four threads": held["threads"],
            "held by two processes": (together + 2 * context) / LIMIT_MIB,
            "granted after kill -9": after / max(1, told["linked"]["granted_mib"]),
            "cuInit refused": float(unreadable["begun"][0] != 0),
        }
    )


def calls(bench: Bench, way: Way) -> Told:
    """Nanoseconds of calls as a program finds them, inside limits of 4 GiB and 99 %.

    The driver's own functions are called in the same process in turn: processes differ by more
    than a limiter costs.
    """
    folder = bench.fresh()
    program = compile_program(bench.build, folder)
    env = environment(bench.machine, way, Limits(cores="99"), folder / "state")
    told = _run([str(program), str(ROUNDS), str(SCALE)], env, CALLS_S)["calls"]
    values = {name: float(told[name]["ours_median_ns"]) for name in CALLS}
    of_bare = {name: values[name] / float(told[name]["direct_median_ns"]) for name in CALLS}
    values[ALLOCATIONS] = 1e9 / values[POOL_PAIR]
    of_bare[ALLOCATIONS] = 1 / of_bare[POOL_PAIR]
    return Told(values, of_bare)


def time(bench: Bench, way: Way) -> Told:
    """Shares of GPU time: 30 %, hard and soft, alone, beside its like and beside 70; four of 25."""
    alone = _scene(bench, way, Tenant("saturate 1000", 30))
    soft = Tenant("saturate 1000", 30, soft=80)
    lent = _scene(bench, way, soft)
    divided = _scene(bench, way, soft, soft)
    returned = _scene(bench, way, soft, Tenant("saturate 25000", 70))
    pair = _scene(bench, way, Tenant("saturate 500", 30), Tenant("saturate 25000", 70))
    four = _scene(bench, way, *(Tenant(f"saturate {each}", 25) for each in AT_A_TIME))
    return Told(
        {
            "GPU time at 30 %, alone": alone[0]["busy"] / 30,
            "GPU time at 30 %, soft 80, alone": lent[0]["busy"] / 80,
            "two at 30 %, soft 80, together": sum(each["rate"] for each in divided) / 100,
            "at 30 %, soft 80, beside 70 %": returned[0]["rate"] / 30,
            "GPU time at 30 %, beside 70 %": pair[0]["rate"] / 30,
            "fairness of four at 25 %": fairness([each["rate"] for each in four]),
        }
    )


def tokens(bench: Bench, way: Way) -> Told:
    """A model server beside training: what a request waits for, arrival to result."""
    server, training = _scene(bench, way, Tenant("serve", 30), Tenant("train", 70))
    return Told(
        {
            "requests at 30 %, p50": server["p50_ms"],
            "requests at 30 %, p99": server["p99_ms"],
            "training beside at 70 %": training["rate"],
        }
    )


MEASURES: Mapping[str, Callable[[Bench, Way], Told]] = {
    "memory": memory,
    "calls": calls,
    "time": time,
    "tokens": tokens,
}


# Implementation.


def _guest(bench: Bench, way: Way, limits: Limits, state: Path, word: str) -> dict[str, Any]:
    env = environment(bench.machine, way, limits, state)
    return _run([sys.executable, str(GUEST), word], env, GUEST_S)


def _beside(bench: Bench, way: Way, limits: Limits) -> tuple[int, int]:
    """MiB of a process that holds some and of one beside it together; and of one after a kill."""
    state = bench.fresh()
    holder = subprocess.Popen(
        [sys.executable, str(GUEST), "hold"],
        env=environment(bench.machine, way, limits, state),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert holder.stdout
        line = holder.stdout.readline()
        if not line:
            raise NotMeasured("a process that holds memory ended")
        held = int(json.loads(line)["granted_mib"])
        beside = int(_guest(bench, way, limits, state, "linked")["granted_mib"])
    finally:
        holder.kill()
        holder.communicate()
    after = int(_guest(bench, way, limits, state, "linked")["granted_mib"])
    return held + beside, after


def _run(command: list[str], env: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command, env=dict(env), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"{Path(command[-1]).name} hangs") from None
    try:
        # A limiter may write lines of its own to stdout, in front of the object.
        answer: dict[str, Any] = json.loads(done.stdout[max(0, done.stdout.find("{")) :])
    except ValueError:
        said = " ".join(done.stderr.split())[-200:]
        raise NotMeasured(f"{Path(command[0]).name}: status {done.returncode} {said}") from None
    return answer


def _scene(bench: Bench, way: Way, *tenants: Tenant) -> list[dict[str, Any]]:
    name = " + ".join(f"{each.program} at {each.limit}" for each in tenants)
    line = Line(Scene(name, tenants), way, bench.seconds)
    why = bench.session.why_not(line)
    if why:
        raise NotMeasured(why)
    told = bench.session.measure(line, None)
    if "error" in told:
        raise NotMeasured(str(told["error"]))
    tenants_told: list[dict[str, Any]] = told["tenants"]
    return tenants_told


def cores_here() -> int:
    """Processors that the bench may use: what is measured on fewer is slower."""
    return len(os.sched_getaffinity(0))
