"""What a memory limit costs: `python3 bench/memory.py [--build DIR] [--real] [-o FILE]`.

Compiles memory_overhead.cpp and runs it inside a limit of 4 GiB, over the simulated driver or, with
--real, the machine's own. Direct and limited calls are timed in the same process, in short blocks
that take turns: with 1 to 1,000,000 live allocations, with 1 to 256 attached processes, and from 1
to 16 threads. cuInit and /bin/true are timed as whole processes, bare and limited in turn. --only
measures one of these parts. Over the simulated driver, which seldom enters the kernel, --cold
empties the caches around each of its calls, as a real one's do in part.

"extra" is the median of the differences within a round; "hooks" the same of the time outside the
driver's functions, which is our own code's. The rest is what the driver itself takes more or less,
and that differs from process to process by some hundred nanoseconds, in both directions. So each
figure is taken in several processes: shown is the middle one, and the least and the greatest. A
target is missed when even the least lies above it, and met when the middle one lies below; in
between the measurement does not tell.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import HERE, BenchError, arguments, compiler, conclude

LIVE = (1, 1_000, 1_000_000)
ATTACHED = (1, 16, 256)
THREADS = (1, 4, 16)
PARTS = ("live", "processes", "threads", "start")
LIMIT = "4GiB"
RUN_TIMEOUT_S = 90.0
ATTACH_TIMEOUT_S = 60.0

# Nanoseconds that a limit may add (issue: cost, bare and limited in one run).
PAIR_NS = 150.0
TARGETS_NS = {
    "async pair 2 MiB": 100.0,
    "own pool pair 2 MiB": 100.0,
    "cuMemGetInfo": 0.0,
    "nvmlDeviceGetMemoryInfo": 0.0,
    "cuLaunchKernel": 5.0,
    "cuInit": 5e6,
    "/bin/true": 0.3e6,
}
# Queries and launches are judged to within this part of what they cost bare.
NOISE = 0.01
CLOCKED_BY_PART = ("cuMemGetInfo", "nvmlDeviceGetMemoryInfo", "cuLaunchKernel")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are, and how to run them."""

    program: Path
    library: Path
    real: bool
    sim: Path
    folder: Path
    seconds: float  # at most, for one figure of a run
    runs: int
    cold: bool

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
    command += [str(HERE / "memory_overhead.cpp"), "-o", str(program), "-ldl", "-pthread"]
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


def figures_of(bench: Bench, *words: object) -> dict[str, Any]:
    """What one run of the program printed, provided that the limit held in it."""
    figures: dict[str, Any] = json.loads(bench.run(*words, limited=True))
    if figures["total"] != 4 << 30:
        raise BenchError(f"the limit does not hold: a total of {figures['total']} bytes is shown")
    return figures


def calls(bench: Bench, live: int, processes: int, fill_seconds: float) -> dict[str, Any]:
    """Runs of "calls" in new processes; `processes` counts the measured one."""
    with attached(bench, processes - 1) as others:
        words = ("calls", bench.seconds, live, fill_seconds, *(["cold"] if bench.cold else []))
        runs = [figures_of(bench, *words) for _ in range(bench.runs)]
    return {"processes": others + 1, **over_runs(runs)}


def over_runs(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several processes' figures as one: where code and data come to lie differs between them.

    Of each call the run in the middle, the least and the greatest. One run keeps its own bounds.
    """
    merged = dict(runs[0])
    merged["calls"] = {}
    for name in runs[0]["calls"]:
        calls = [run["calls"][name] for run in runs]
        same = sorted(calls, key=lambda call: call["extra_median_ns"])
        merged["calls"][name] = {**same[len(same) // 2]}
        for what in ("extra", "hooks"):
            if len(runs) > 1 and f"{what}_median_ns" in same[0]:
                medians = sorted(call[f"{what}_median_ns"] for call in calls)
                merged["calls"][name] |= {
                    f"{what}_median_ns": statistics.median(medians),
                    f"{what}_low_ns": medians[0],
                    f"{what}_high_ns": medians[-1],
                }
    return merged


def threads(bench: Bench, count: int) -> dict[str, Any]:
    """The same of "threads"."""
    runs = [figures_of(bench, "threads", bench.seconds, count) for _ in range(bench.runs)]
    return over_runs(runs)


def spread(extra: list[float]) -> dict[str, float]:
    """The median of differences and the bounds that hold it 95 times in 100."""
    extra = sorted(extra)
    edge = max(0, int(len(extra) / 2 - 0.98 * len(extra) ** 0.5))
    return {
        "extra_median_ns": statistics.median(extra),
        "extra_low_ns": extra[edge],
        "extra_high_ns": extra[-1 - edge],
    }


def init_times(bench: Bench, rounds: int) -> dict[str, float]:
    """The driver's initialisation, bare and limited in turn, in nanoseconds."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for limited in (False, True) if number % 2 else (True, False):
            times[limited].append(float(bench.run("init", limited=limited)))
    bare, ours = (statistics.median(times[limited]) for limited in (False, True))
    extra = [one - other for one, other in zip(times[True], times[False], strict=True)]
    return {
        "rounds": rounds,
        "direct_median_ns": bare,
        "ours_median_ns": ours,
        **spread(extra),
        "ratio": ours / bare,
    }


def true_times(bench: Bench, rounds: int) -> dict[str, float]:
    """The time of /bin/true, with a limit in the environment both times."""
    env = {k: v for k, v in bench.environment(True).items() if k != "LD_PRELOAD"}
    command = [str(bench.program), "true", str(rounds), str(bench.library)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"/bin/true could not be timed: {done.stderr.strip()[-200:]}")
    figures: dict[str, float] = json.loads("{" + done.stdout + "}")["/bin/true"]
    return figures


def measure(bench: Bench, fill_seconds: float, parts: Sequence[str]) -> dict[str, Any]:
    """The parts asked for, as one JSON value."""
    figures: dict[str, Any] = {"schema": 3, "simulated": not bench.real}
    if "live" in parts:
        figures["live"] = [calls(bench, live, 1, fill_seconds) for live in LIVE]
    if "processes" in parts:
        figures["processes"] = [calls(bench, 1, count, fill_seconds) for count in ATTACHED]
    if "threads" in parts:
        figures["threads"] = [threads(bench, count) for count in THREADS]
    if "start" in parts:
        figures["cuInit"] = init_times(bench, 9)
        figures["/bin/true"] = true_times(bench, 200)
    return figures


def target_ns(name: str, call: Mapping[str, float]) -> float:
    """What the limit may add to a call."""
    noise = NOISE * call["direct_median_ns"] if name in CLOCKED_BY_PART else 0.0
    return TARGETS_NS.get(name, PAIR_NS) + noise


def missed(name: str, call: Mapping[str, float]) -> bool:
    """Whether a call surely costs more than its target allows."""
    return call["extra_low_ns"] > target_ns(name, call)


def verdict(name: str, call: Mapping[str, float]) -> str:
    """The target and what is known about it, for people."""
    if missed(name, call):
        found = "MISSED"
    else:
        found = "met" if call["extra_median_ns"] <= target_ns(name, call) else "within the noise"
    return f"  target +{TARGETS_NS.get(name, PAIR_NS):g} {found}"


def rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """Every measured call: under which condition, its name, its times."""
    for unit in ("live", "processes"):
        for figure in figures.get(unit, []):
            for name, call in figure["calls"].items():
                yield f"{figure[unit]} {unit}", name, call
    if "cuInit" in figures:
        yield "first call", "cuInit", figures["cuInit"]
        yield "whole process", "/bin/true", figures["/bin/true"]


def thread_rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
    """The same for several threads, which no target is about: they wait for each other anyway."""
    for figure in figures.get("threads", []):
        for name, call in figure["calls"].items():
            yield f"{figure['threads']} threads", name, call


def line(condition: str, name: str, call: Mapping[str, float]) -> str:
    """One row of the table."""
    bound = f"{call['extra_low_ns']:.1f} to {call['extra_high_ns']:.1f}"
    hooks = f"{call['hooks_median_ns']:.1f}" if "hooks_median_ns" in call else ""
    text = f"{condition:18}{name:25}{call['direct_median_ns']:12.1f}{call['ours_median_ns']:12.1f}"
    return f"{text}{call['extra_median_ns']:11.1f}  {bound:22}{hooks:>8}{call['ratio']:8.3f}"


def table(figures: Mapping[str, Any]) -> str:
    """The figures for people."""
    driver = "the simulated driver" if figures["simulated"] else "a real driver"
    head = f"{'ns over ' + driver:43}{'direct':>12}{'limited':>12}{'extra':>11}  "
    lines = [f"{head}{'least to greatest':22}{'hooks':>8}{'ratio':>8}"]
    for condition, name, call in rows(figures):
        judged = "" if figures["simulated"] else verdict(name, call)
        lines.append(line(condition, name, call) + judged)
    lines += [line(*row) for row in thread_rows(figures)]
    return "\n".join(lines)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles the program and measures with it.

    Raises:
        BenchError: there is no library, or the program does not compile or ends badly.
    """
    build = options.build.resolve()
    with tempfile.TemporaryDirectory(prefix="gpufence-") as name:
        folder = Path(name)
        (folder / "state").mkdir()
        program = compile_program(build, folder)
        library = build / "lib" / "libgpufence.so"
        if not library.exists():
            raise BenchError(f"{build} holds no library. Run ci/build first")
        bench = Bench(
            program=program,
            library=library,
            real=options.real,
            sim=build / "sim",
            folder=folder,
            seconds=options.seconds,
            runs=options.runs,
            cold=options.cold,
        )
        return measure(bench, options.fill_seconds, options.only or PARTS)


def all_missed(figures: dict[str, Any]) -> list[str]:
    """The figures whose target is missed."""
    return [f"{condition} {name}" for condition, name, call in rows(figures) if missed(name, call)]


def main(words: list[str]) -> int:
    """See the module's text."""
    parser = arguments("memory.py", "A memory limit's cost.")
    parser.add_argument("--seconds", type=float, default=0.2, help="per figure and run (0.2)")
    parser.add_argument("--runs", type=int, default=3, help="processes for each figure (3)")
    parser.add_argument("--fill-seconds", type=float, default=20, help="to fill with (20)")
    parser.add_argument("--cold", action="store_true", help="caches emptied around driver calls")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; repeatable (all)")
    options = parser.parse_args(words)
    return conclude(options, lambda: measured(options), table, all_missed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
