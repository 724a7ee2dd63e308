"""What a memory limit costs: `python3 bench/memory.py [--build DIR] [--real] [-o FILE]`.

Compiles memory_overhead.cpp and runs it inside a limit of 4 GiB, over the simulated driver or, with
--real, the machine's own. Direct and limited calls are timed in the same process, interleaved: with
1 to 1,000,000 live allocations and with 1 to 256 attached processes. cuInit and /bin/true are timed
as whole processes, bare and limited in turn.

Exit status: 0 measured (and with --real within the targets), 1 a target was missed, 2 wrong usage,
3 nothing could be measured. Targets are judged on a real driver only.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run import HERE, REPO, BenchError, compiler

LIVE = (1, 1_000, 1_000_000)
ATTACHED = (1, 16, 256)
LIMIT = "4GiB"
RUN_TIMEOUT_S = 90.0
ATTACH_TIMEOUT_S = 60.0

# Nanoseconds that a limit may add (issue: cost, bare and limited in one run).
TARGETS_NS = {
    "alloc+free 2 MiB": 150.0,
    "alloc+free 1 KiB": 150.0,
    "managed pair 2 MiB": 150.0,
    "async pair 2 MiB": 100.0,
    "cuMemGetInfo": 0.0,
    "cuLaunchKernel": 5.0,
    "cuInit": 5e6,
    "/bin/true": 0.3e6,
}
# Medians of calls that cost microseconds differ by this much between two runs of the same code.
NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are, and how to run them."""

    program: Path
    library: Path
    real: bool
    sim: Path
    folder: Path
    rounds: int

    def environment(self, limited: bool) -> dict[str, str]:
        """A program's environment: bare, or inside the limit in this bench's container."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUFENCE_", "LD_PRE"))}
        if not self.real:
            env["LD_LIBRARY_PATH"] = str(self.sim)
            env["GPUFENCE_SIM_STATE"] = str(self.folder / "machine")
        if limited:
            env["LD_PRELOAD"] = str(self.library)
            env["GPUFENCE_MEMORY_LIMIT"] = LIMIT
            env["GPUFENCE_STATE_DIR"] = str(self.folder / "state")
        return env

    def run(self, *words: object, limited: bool) -> str:
        """The program's stdout.

        Raises:
            BenchError: it failed, or took longer than it may.
        """
        try:
            done = subprocess.run(
                [self.program, *map(str, words)],
                env=self.environment(limited),
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"memory_overhead {words} takes over {RUN_TIMEOUT_S:g} s") from None
        if done.returncode != 0:
            raise BenchError(f"memory_overhead {words}: {done.stderr.strip()[-300:]}")
        return done.stdout


def compile_program(build: Path, folder: Path) -> Path:
    """Compiles memory_overhead against the build's rendered declarations.

    Raises:
        BenchError: the compiler failed; the text is its first complaint.
    """
    program = folder / "memory_overhead"
    command = [*compiler(build), "-O2", "-std=c++20", "-I", str(build / "gen"), "-I", str(HERE)]
    command += [str(HERE / "memory_overhead.cpp"), "-o", str(program), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"memory_overhead.cpp does not compile: {done.stderr.strip()[:500]}")
    return program


@contextmanager
def attached(bench: Bench, count: int) -> Iterator[int]:
    """Other processes of the container; yields how many got there in time."""
    others = [
        subprocess.Popen(
            [bench.program, "attach"],
            env=bench.environment(True),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(count)
    ]
    try:
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        ready = 0
        for other in others:
            assert other.stdout is not None
            left = max(0.0, deadline - time.monotonic())
            if select.select([other.stdout], [], [], left)[0]:
                ready += other.stdout.readline() == b"ready\n"
        yield ready
    finally:
        for other in others:
            other.kill()
            other.communicate()


def calls(bench: Bench, live: int, processes: int, seconds: float) -> dict[str, Any]:
    """One run of "calls"; `processes` counts the measured one."""
    with attached(bench, processes - 1) as others:
        text = bench.run("calls", bench.rounds, live, seconds, limited=True)
    figures: dict[str, Any] = json.loads(text)
    if figures["total"] != 4 << 30:
        raise BenchError(f"the limit does not hold: a total of {figures['total']} bytes is shown")
    return {"processes": others + 1, **figures}


def init_times(bench: Bench, runs: int) -> dict[str, float]:
    """The driver's initialisation, bare and limited in turn, in nanoseconds."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * runs):
        limited = bool((number + number // 2) % 2)
        times[limited].append(float(bench.run("init", limited=limited)))
    bare, ours = (statistics.median(times[limited]) for limited in (False, True))
    return {"direct_median_ns": bare, "ours_median_ns": ours, "extra_median_ns": ours - bare}


def true_times(bench: Bench, runs: int) -> dict[str, float]:
    """The time of /bin/true, with a limit in the environment both times."""
    env = {k: v for k, v in bench.environment(True).items() if k != "LD_PRELOAD"}
    command = [str(bench.program), "true", str(runs), str(bench.library)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"/bin/true could not be timed: {done.stderr.strip()[-200:]}")
    figures = json.loads(done.stdout)
    return {
        "direct_median_ns": figures["bare_median_ns"],
        "ours_median_ns": figures["preloaded_median_ns"],
        "extra_median_ns": figures["extra_median_ns"],
    }


def measure(bench: Bench, live_seconds: float) -> dict[str, Any]:
    """Everything, as one JSON value."""
    return {
        "schema": 1,
        "simulated": not bench.real,
        "live": [calls(bench, live, 1, live_seconds) for live in LIVE],
        "attached": [calls(bench, 1, processes, live_seconds) for processes in ATTACHED],
        "cuInit": init_times(bench, 9),
        "/bin/true": true_times(bench, 200),
    }


def missed(name: str, call: Mapping[str, float]) -> bool:
    """Whether a call costs more than its target allows, the clock's noise apart."""
    noise = NOISE * call["direct_median_ns"] if name in ("cuMemGetInfo", "cuLaunchKernel") else 0.0
    return call["extra_median_ns"] > TARGETS_NS[name] + noise


def rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """Every measured call: under which condition, its name, its times."""
    for key, unit in (("live", "live"), ("attached", "processes")):
        for figure in figures[key]:
            for name, call in figure["calls"].items():
                yield f"{figure[unit]} {unit}", name, call
    for name in ("cuInit", "/bin/true"):
        yield "whole process" if name == "/bin/true" else "first call", name, figures[name]


def table(figures: Mapping[str, Any]) -> str:
    """The figures for people."""
    driver = "the simulated driver" if figures["simulated"] else "a real driver"
    head = f"{'ns over ' + driver:22}{'':18}{'direct':>12}{'limited':>12}{'extra':>11}"
    lines = [head]
    for condition, name, call in rows(figures):
        line = f"{condition:22}{name:18}{call['direct_median_ns']:12.1f}"
        line += f"{call['ours_median_ns']:12.1f}{call['extra_median_ns']:11.1f}"
        if not figures["simulated"]:
            line += f"  target +{TARGETS_NS[name]:g} " + ("MISSED" if missed(name, call) else "met")
        lines.append(line)
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="bench/memory.py", description="A memory limit's cost.")
    parser.add_argument("--build", type=Path, default=REPO / "build", help="build folder (build)")
    parser.add_argument("--real", action="store_true", help="measure the machine's own driver")
    parser.add_argument("--rounds", type=int, default=31, help="interleaved rounds (31)")
    parser.add_argument("--live-seconds", type=float, default=20, help="to fill with (20)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args(words)
    build = options.build.resolve()
    try:
        with tempfile.TemporaryDirectory(prefix="gpufence-") as name:
            folder = Path(name)
            (folder / "state").mkdir()
            program = compile_program(build, folder)
            library = build / "lib" / "libgpufence.so"
            if not library.exists():
                raise BenchError(f"{build} holds no library. Run ci/build first")
            bench = Bench(program, library, options.real, build / "sim", folder, options.rounds)
            figures = measure(bench, options.live_seconds)
    except BenchError as error:
        print(f"bench: nothing measured: {error}.", file=sys.stderr)
        return 3
    if options.output is not None:
        options.output.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(table(figures))
    return int(options.real and any(missed(name, call) for _, name, call in rows(figures)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
