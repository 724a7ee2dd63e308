"""What the library costs per call: `bench/call_overhead.py [--build DIR] [--real] [-o FILE]`.

Compiles call_overhead.cpp and runs it with the library in front of the simulated driver, or of the
machine's own with --real. Both forms of every call are timed in the same process, interleaved.
Prints a table; -o writes the figures as JSON.

Exit status: 0 measured (and with --real within the targets), 1 a target was missed, 2 wrong usage,
3 nothing could be measured. Targets are judged on a real driver only: where the simulator runs,
neighbours make single nanoseconds meaningless.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import HERE, BenchError, arguments, compiler, conclude

# Nanoseconds that the library may add (design, invariant 17).
TARGETS_NS = {"cuCtxGetCurrent": 1.0, "cuLaunchKernel": 5.0}


def compile_program(build: Path, folder: Path) -> Path:
    """Compiles call_overhead against the build's rendered declarations.

    Raises:
        BenchError: the compiler failed; the text is its first complaint.
    """
    program = folder / "call_overhead"
    command = [*compiler(build), "-O2", "-std=c++20", "-I", str(build / "gen"), "-I", str(HERE)]
    command += [str(HERE / "call_overhead.cpp"), "-o", str(program), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"call_overhead.cpp does not compile: {done.stderr.strip()[:500]}")
    return program


def environment(build: Path, state: Path, real: bool) -> dict[str, str]:
    """The program's environment: the library in front of the driver to measure."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUFENCE_")}
    env["LD_PRELOAD"] = str(build / "lib" / "libgpufence.so")
    if not real:
        env |= {"LD_LIBRARY_PATH": str(build / "sim"), "GPUFENCE_SIM_STATE": str(state)}
    return env


def measure(build: Path, real: bool, rounds: int, scale: float) -> dict[str, Any]:
    """Runs the program once.

    Returns:
        Its figures: nanoseconds per call, the minimum and the median over all rounds.

    Raises:
        BenchError: no library, no compiler, no driver, or the library was not in between.
    """
    if not (build / "lib" / "libgpufence.so").exists():
        raise BenchError(f"{build} holds no library. Run ci/build first, or name another --build")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compile_program(build, folder)
        done = subprocess.run(
            [program, str(rounds), str(scale)],
            env=environment(build, folder / "machine", real),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise BenchError(
            done.stderr.strip()[-500:] or f"call_overhead ended with {done.returncode}"
        )
    figures: dict[str, Any] = json.loads(done.stdout)
    if not figures["our_object"].startswith("libgpufence"):
        raise BenchError(f"calls went to {figures['our_object']}: the library was not in between")
    return {"schema": 1, "simulated": not real, **figures}


def verdict(name: str, call: Mapping[str, float], real: bool) -> str:
    """What a table's last column says about a call's target; empty when it has none."""
    target = TARGETS_NS.get(name)
    if target is None:
        return ""
    if not real:
        return f"target +{target:g} ns, judged on a GPU"
    return f"target +{target:g} ns " + ("met" if call["extra_median_ns"] <= target else "MISSED")


def table(figures: Mapping[str, Any]) -> str:
    """The figures for people."""
    driver = "the simulated driver" if figures["simulated"] else "a real driver"
    head = f"{'ns per call over ' + driver:42}{'direct':>10}{'ours':>10}{'extra':>9}{'ratio':>7}"
    lines = [head]
    for name, call in figures["calls"].items():
        direct, ours = call["direct_median_ns"], call["ours_median_ns"]
        line = f"{name:42}{direct:10.1f}{ours:10.1f}{call['extra_median_ns']:9.2f}"
        line += f"{ours / direct:7.2f}  {verdict(name, call, not figures['simulated'])}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def missed(figures: Mapping[str, Any]) -> list[str]:
    """The calls whose target is missed."""
    return [n for n, call in figures["calls"].items() if "MISSED" in verdict(n, call, real=True)]


def main(words: list[str]) -> int:
    """See the module's text."""
    parser = arguments("call_overhead.py", "Call overhead.")
    parser.add_argument("--rounds", type=int, default=31, help="interleaved rounds (31)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the calls of a round (1)")
    options = parser.parse_args(words)
    build = options.build.resolve()
    return conclude(
        options, lambda: measure(build, options.real, options.rounds, options.scale), table, missed
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
