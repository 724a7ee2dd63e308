"""Containers on one simulated GPU for hours, by a seed: what is lost, passed or grown.

    ci/soak                              an hour
    ci/soak --seconds 600 --seed 7 --output soak.json

Each round draws some events: containers come and go, processes are killed (kill -9), stopped and
throttled, limits change (gpufence set), containers are frozen and resumed, memory is oversold. Then
everybody stands still: each process is charged what the driver says it holds, no limit was passed
at any moment, and no file is left of those that ended. At the end the memory, descriptors and
threads of the processes that lived throughout are compared, early and late.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.support.machine import REPO

from . import judging
from .judging import Growth
from .members import LostError
from .node import Node, Roll, facts_of

# What may grow by how much. A first launch that a freeze holds begins a thread, and a thread's
# first allocation makes mappings.
MOST_MORE = {
    "anonymous KiB": judging.GROWTH_KIB,
    "shared KiB": judging.GROWTH_KIB,
    "descriptors": 0,
    "threads": 1,
    "mappings": 16,
    "files of nobody": 0,
    "KiB of residents": judging.GROWTH_KIB,
}
TELL_S = 15.0


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="ci/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (3600)")
    parser.add_argument("--rounds", type=int, help="so many rounds instead")
    parser.add_argument("--seed", type=int, help="of what is drawn; printed (any)")
    parser.add_argument("--build", type=Path, default=REPO / "build", help="what is tested (build)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the figures as JSON")
    args = parser.parse_args()
    if not (args.build / "tests" / "kill_worker").exists():
        print(
            f"ci/soak: {args.build} holds no test programs. Run ci/build --tests.", file=sys.stderr
        )
        return 3
    seed = random.SystemRandom().getrandbits(32) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="gpufence-soak-") as folder:
        soak = Soak(args.build.resolve(), Path(folder), seed)
        try:
            soak.run(args.seconds, args.rounds)
        except LostError as lost:
            soak.problems.append(f"round {soak.rounds}: {lost}")
        finally:
            soak.node.end()
    report = soak.report(seed)
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(report)
    return 1 if report["problems"] else 0


class Soak:
    """The rounds, and what was seen in each."""

    def __init__(self, build: Path, folder: Path, seed: int) -> None:
        """Start the node."""
        self.dice = random.Random(seed)
        self.node = Node(build, folder, self.dice)
        self.rounds = 0
        self.seconds = 0.0
        self.problems: list[str] = []
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.fullest = 0.0

    def run(self, seconds: float, rounds: int | None) -> None:
        """Until the time or the rounds are over, or something is wrong."""
        begun = told = time.monotonic()
        while not self.problems and (self.rounds < rounds if rounds else self.seconds < seconds):
            self.rounds += 1
            for _ in range(self.dice.randint(2, 7)):
                self.node.disturb()
                self.node.pass_time(self.dice.random() * 0.2)
            self.note(self.node.roll_call())
            self.seconds = time.monotonic() - begun
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                counts = self.node.counts
                print(
                    f"{self.seconds:.0f} s, round {self.rounds}: {counts['killed']} killed, "
                    f"{counts['set']} limits set, {counts['granted']} allocations granted",
                    file=sys.stderr, flush=True,
                )  # fmt: skip

    def note(self, roll: Roll) -> None:
        """Keep what a roll call saw."""
        self.problems += [f"round {self.rounds}: {problem}" for problem in roll.problems]
        self.fullest = max(self.fullest, roll.most_mib / max(1, roll.allowed_mib))
        for member in self.node.residents():
            for name, value in facts_of(member.pid).items():
                self.samples[f"{member.kind}: {name}"].append(value)
        self.samples["state folder: files of nobody"].append(roll.files["nobody's"])
        self.samples["state folder: KiB of residents"].append(roll.residents_kib)

    def report(self, seed: int) -> dict[str, object]:
        """All figures; `problems` are lines for people."""
        grown = []
        for name, samples in self.samples.items():
            found = judging.growth(name, samples, MOST_MORE[name.partition(": ")[2]])
            grown += [found] if found else []
        problems = [*self.problems, *[each.problem for each in grown if each.problem]]
        return {
            "schema": 1,
            "seed": seed,
            "seconds": round(self.seconds, 1),
            "rounds": self.rounds,
            "processors": len(os.sched_getaffinity(0)),
            "counts": dict(sorted(self.node.counts.items())),
            "fullest": round(self.fullest, 4),
            "growth": [_described(each) for each in grown],
            "problems": problems,
        }


def _described(growth: Growth) -> dict[str, object]:
    return {"name": growth.name, "early": growth.early, "late": growth.late}


def show(report: dict[str, object]) -> None:
    """The same for people."""
    counts, growth, problems = (report[each] for each in ("counts", "growth", "problems"))
    assert isinstance(counts, dict)
    assert isinstance(growth, list)
    assert isinstance(problems, list)
    print(f"{report['rounds']} rounds in {report['seconds']} s")
    for name, count in counts.items():
        print(f"  {name:32}{count:>12}")
    print(f"  {'most in use of what was allowed':32}{report['fullest']:>12.1%}")
    print(f"{'':34}{'early':>12}{'late':>12}")
    for each in growth:
        print(f"  {each['name']:32}{each['early']:>12g}{each['late']:>12g}")
    for problem in problems:
        print(f"ci/soak: {problem}", file=sys.stderr)
    sys.stdout.flush()
    print("broken" if problems else "nothing was lost, passed or grown")


if __name__ == "__main__":
    sys.exit(main())
