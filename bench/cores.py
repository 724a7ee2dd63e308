"""What a core limit costs: `python3 bench/cores.py [--build DIR] [--real] [-o FILE]`.

Compiles cores.cpp and runs it bare, with the library and no limit, and at 99 %, over the simulated
driver or, with --real, the machine's own: the rate of launches and how long one takes, the same of
kernels that are waited for at a limit that they do not reach, what each thread takes busy and idle
(ours is "gpufence"), bare and at 50 %, and how late a held launch goes after all was paid for. What
the first launch of a process takes is told apart: the driver loads the kernel then, for some
milliseconds, which is no hold.

Exit status: 0 measured (and with --real within the targets), 1 a target was missed, 2 wrong usage,
3 nothing could be measured. Targets are judged on a real driver only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from measuring import HERE, REPO, BenchError, arguments, compiler, conclude

ROUNDS = 24  # of the driver's own function and ours in turn, in one process
WAITED_ROUNDS = 12
WAITED_US = (10, 30, 60)
WAITED_LIMIT = 95  # which they do not reach
PROCESSES = 3  # the median of their medians counts
RATE_COLUMNS = (
    ("driver", "each_ns"),
    ("driver", "p99_ns"),
    ("found", "each_ns"),
    ("found", "p50_ns"),
    ("found", "p99_ns"),
)
HOLDS = ((10, 1_000, 30), (50, 1_000, 200), (50, 20_000, 30), (25, 200_000, 3))
WATCHED_WAYS = ("stream", "context", "event", "spin", "ahead")
WATCHED_US = (10, 1_000)
WATCHED_S, IDLE_S = 1.0, 0.5
WATCHER, PROGRAM = "gpufence", "program"  # names of threads
RUN_TIMEOUT_S = 120.0

LEAST_RATE = 0.97  # of bare, empty kernels at 99 %
LEAST_WAITED_RATE = 0.98  # of bare, of kernels from here on
LEAST_WAITED_US = 30
MOST_BUSY_PERCENT = 2.0  # of a core
MOST_IDLE_PERCENT = 0.1
# A held launch sleeps to the moment; what comes on top is its waking up, and a tick of the watcher
# where the end of a kernel had still to be seen.
MOST_LATE_NS = 1_500_000


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are, and how to run them."""

    program: Path
    build: Path
    real: bool
    folder: Path

    def ask(self, *words: object, limit: int | None = None, preload: bool = True) -> dict[str, Any]:
        """Runs the program once, in a container of its own.

        Raises:
            BenchError: it failed, or did not end in time.
        """
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUFENCE_", "LD_"))}
        with tempfile.TemporaryDirectory(dir=self.folder) as state:
            if not self.real:
                env["LD_LIBRARY_PATH"] = str(self.build / "sim")
                env["GPUFENCE_SIM_STATE"] = f"{state}/machine"
            if preload:
                env["LD_PRELOAD"] = str(self.build / "lib" / "libgpufence.so")
            if limit is not None:
                env |= {"GPUFENCE_CORE_LIMIT": str(limit), "GPUFENCE_STATE_DIR": state}
            command = [str(self.program), *map(str, words)]
            try:
                done = subprocess.run(
                    command, env=env, capture_output=True, text=True, timeout=RUN_TIMEOUT_S
                )
            except subprocess.TimeoutExpired:
                raise BenchError(f"{words} took more than {RUN_TIMEOUT_S:g} s") from None
        if done.returncode != 0:
            raise BenchError(f"{words}: {done.stderr.strip()[-300:] or done.returncode}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@contextmanager
def opened(build: Path, real: bool) -> Iterator[Bench]:
    """Compiles the program against the build's declarations and the driver that it names."""
    if not (build / "lib" / "libgpufence.so").exists():
        raise BenchError(f"{build} holds no library. Run ci/build first, or name another --build")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "cores"
        command = [*compiler(build), "-O2", "-std=c++20", "-I", str(HERE)]
        command += [
            "-I",
            str(build / "gen"),
            "-I",
            str(REPO / "lib" / "src"),
            "-I",
            str(REPO / "tests"),
        ]
        command += [str(HERE / "cores.cpp"), "-o", str(program)]
        command += ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed"]
        command += ["-L", str(build / "sim"), "-l:libcuda.so.1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"cores.cpp does not compile: {done.stderr.strip()[:500]}")
        yield Bench(program, build, real, folder)


def launch_rate(bench: Bench) -> dict[str, Any]:
    """Empty kernels without a library, preloaded and at 99 %: each against the driver's own call.

    Both forms run in the same process, since processes differ by more than a limit costs; without
    a library both are the driver's, which tells how much is noise.
    """
    ways: dict[str, dict[str, Any]] = {
        "bare": {"preload": False},
        "no limit": {},
        "99 %": {"limit": 99},
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(PROCESSES):
        for name, how in ways.items():
            runs[name].append(bench.ask("rate", ROUNDS, 0, **how))
    ratios = {name: median(run["ratio"] for run in runs[name]) for name in ways}
    return {"runs": runs, "ratios": ratios}


def waited_rate(bench: Bench) -> dict[str, Any]:
    """Kernels that are each waited for, at a limit that they do not reach, as launch_rate."""
    return {
        f"{us} us": bench.ask("rate", WAITED_ROUNDS, us, limit=WAITED_LIMIT) for us in WAITED_US
    }


def thread_shares(bench: Bench) -> dict[str, dict[str, Any]]:
    """Percent of a core that each thread takes, for a program that waits in each way."""
    ways: dict[str, dict[str, Any]] = {"bare": {"preload": False}, "50 %": {"limit": 50}}
    return {
        f"{kernel_us} us, {waits}, {name}": bench.ask(
            "watch", waits, kernel_us, WATCHED_S, IDLE_S, **how
        )
        for kernel_us in WATCHED_US
        for waits in WATCHED_WAYS
        for name, how in ways.items()
    }


def measure(build: Path, real: bool) -> dict[str, Any]:
    """Everything, as JSON values.

    Raises:
        BenchError: nothing could be measured.
    """
    with opened(build, real) as bench:
        holds = {
            f"{limit} % {kernel_us} us": bench.ask("hold", kernel_us, count, limit=limit)
            for limit, kernel_us, count in HOLDS
        }
        return {
            "schema": 1,
            "simulated": not real,
            "rate": launch_rate(bench),
            "waited": waited_rate(bench),
            "threads": thread_shares(bench),
            "holds": holds,
        }


def missed(figures: dict[str, Any]) -> list[str]:
    """Targets that were not met, by name."""
    found = []
    ratio = figures["rate"]["ratios"]["99 %"]
    if ratio < LEAST_RATE:
        found.append(f"launch rate at 99 %: {100 * ratio:.1f} % of bare")
    for us in WAITED_US:
        ratio = figures["waited"][f"{us} us"]["ratio"]
        if us >= LEAST_WAITED_US and ratio < LEAST_WAITED_RATE:
            found.append(f"kernels of {us} us, waited for: {100 * ratio:.1f} % of bare")
    for name, spent in figures["threads"].items():
        for when, most in (("busy", MOST_BUSY_PERCENT), ("idle", MOST_IDLE_PERCENT)):
            percent = spent[when].get(WATCHER, 0)
            if percent > most:
                found.append(f"watcher {when} ({name}): {percent:.2f} % of a core")
    for name, hold in figures["holds"].items():
        if hold.get("latest_ns", 0) > MOST_LATE_NS:
            found.append(f"held at {name}: {hold['latest_ns'] / 1e6:.2f} ms beyond its debt")
    return found


def _by_owner(spent: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the program's thread, ours and all others took."""
    parts = []
    for names in ({PROGRAM}, {WATCHER}, {*spent["busy"]} - {PROGRAM, WATCHER}):
        busy, idle = (sum(spent[when].get(n, 0) for n in names) for when in ("busy", "idle"))
        parts.append(f"{busy:.2f} / {idle:.2f}")
    return parts


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    driver = "the simulated driver" if figures["simulated"] else "a real driver"
    title = f"{'ns per empty launch over ' + driver:44}{'direct':>8}{'p99':>8}"
    lines = [f"{title}{'ours':>8}{'p50':>8}{'p99':>8}{'rate':>8}"]
    for name, runs in figures["rate"]["runs"].items():
        line = "".join(
            f"{median(run[form][key] for run in runs):8.0f}" for form, key in RATE_COLUMNS
        )
        lines.append(f"{name:44}{line}{100 * figures['rate']['ratios'][name]:7.1f}%")
    for name, run in figures["waited"].items():
        line = "".join(f"{run[form][key]:8.0f}" for form, key in RATE_COLUMNS)
        told = f"{name}, waited for, {WAITED_LIMIT} %"
        lines.append(f"{told:44}{line}{100 * run['ratio']:7.1f}%")
    title = f"{'% of a core, busy / idle':44}{'program':>16}{'gpufence':>16}{'others':>16}"
    lines.append(f"{title}{'launches/s':>12}")
    for name, spent in figures["threads"].items():
        cells = "".join(f"{cell:>16}" for cell in _by_owner(spent))
        lines.append(f"{name:44}{cells}{spent['rate']:12.0f}")
    names = ("held", "longest", "late", "latest", "first")
    lines.append(f"{'ms that launches were held':44}" + "".join(f"{name:>8}" for name in names))
    for name, one in figures["holds"].items():
        keys = ("longest_held_ns", "late_p50_ns", "latest_ns", "first_ns")
        spans = [one.get(key, 0) / 1e6 for key in keys]
        lines.append(f"{name:44}{one['held']:8}" + "".join(f"{span:8.2f}" for span in spans))
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """See the module's text."""
    options = arguments("cores.py", "Cost of a core limit.").parse_args(words)
    build = options.build.resolve()
    return conclude(options, lambda: measure(build, options.real), table, missed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
