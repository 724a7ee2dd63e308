"""Everything that needs a GPU, in one go: `python3 tests/gpu/run.py --out DIR`.

Builds the project, then runs the parts named below, each after the other and each with a time
limit, and goes on after failures. Leaves in DIR: report.json, summary.txt and facts.json (what
belongs in tests/conformance/facts/). Exit status 0 when every verdict was right or skipped, 1 when
something differed or failed, 2 for wrong usage, 3 when nothing could be built.

With --sim the simulated driver stands in for the real one: a rehearsal of this very script.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

import part_bench
import part_build
import part_clients
import part_conformance
import part_cores
import part_cores_cost
import part_cores_frameworks
import part_cores_tenants
import part_cores_training
import part_frameworks
import part_live
import part_lookup
import part_memory
import part_memory_cost
import part_memory_frameworks
import part_node
import part_oversold
import part_ranks
import part_soak
from report import Report
from setup import REPO, Setup, describe_machine

Part = Callable[[Setup, Report], None]

# In this order: the quick and the exclusive first, so that a short budget gets the most.
PARTS: dict[str, Part] = {
    "lookup": part_lookup.run_part,
    "conformance": part_conformance.run_part,
    "bench": part_bench.run_part,
    "memory": part_memory.run_part,
    "memory_cost": part_memory_cost.run_part,
    "cores_cost": part_cores_cost.run_part,
    "oversold": part_oversold.run_part,
    "cores": part_cores.run_part,
    "cores_tenants": part_cores_tenants.run_part,
    "cores_training": part_cores_training.run_part,
    "live": part_live.run_part,
    "frameworks": part_frameworks.run_part,
    "memory_frameworks": part_memory_frameworks.run_part,
    "clients": part_clients.run_part,
    "oversold_training": part_oversold.run_training,
    "cores_frameworks": part_cores_frameworks.run_part,
    "node": part_node.run_part,
    "ranks": part_ranks.run_part,
    "soak": part_soak.run_part,
}


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """The command line; argparse ends the process with 2 when it is wrong."""
    parser = argparse.ArgumentParser(prog="tests/gpu/run.py", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--build", type=Path, default=None, help="build folder (build-gpu)")
    parser.add_argument("--no-build", action="store_true", help="use the build folder as it is")
    parser.add_argument("--only", action="append", choices=sorted(PARTS), help="repeatable")
    parser.add_argument("--budget", type=float, default=520, help="seconds in all (520)")
    parser.add_argument("--sim", action="store_true", help="rehearse over the simulated driver")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Runs the parts asked for; see the module's text for the exit status."""
    options = parse_arguments(words)
    options.out.mkdir(parents=True, exist_ok=True)
    build = options.build or REPO / ("build" if options.sim else "build-gpu")
    report = Report(options.out.resolve())
    setup = Setup(
        build.resolve(), options.out.resolve(), options.sim, time.monotonic() + options.budget
    )
    machine = describe_machine()
    report.details |= {"simulated": options.sim, "machine": machine}
    report.note(f"gpu: {'simulated' if options.sim else machine['gpu']}")

    if not options.no_build and not part_build.run_part(setup, report):
        return 3
    for name, part in PARTS.items():
        if options.only and name not in options.only:
            continue
        if setup.left_s(1) <= 0:
            report.judge(name, "all", "skipped", "the time budget is spent")
            continue
        try:
            part(setup, report)
        except Exception as error:  # one broken part must not cost the others their GPU time
            report.judge(name, "all", "failed", f"{type(error).__name__}: {error}")
    return 1 if report.counts.keys() & {"different", "failed"} else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    raise SystemExit(main(sys.argv[1:]))
