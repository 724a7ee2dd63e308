"""The scoreboard's command line, its file and its table. Must not know how anything is measured."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from colocation.command import write
from colocation.kernels import REPO, NoKernels, compile_kernels
from colocation.mps import CONTROL
from colocation.session import Kernels, Session
from colocation.ways import Machine, Way
from measuring import BenchError

from . import plot
from .figures import FIGURES, LIMIT_MIB, PARTS, ratio
from .measure import MEASURES, Bench, NotMeasured, Told, cores_here
from .ways_of import all_ways, limiter_of

SCHEMA = 1
LIMITER = "NAME=LIBRARY[,VARIABLE=VALUE...]"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench/scoreboard.py", description="Each claim against the bare driver, in one run."
    )
    parser.add_argument("--build", type=Path, default=REPO / "build", help="build folder (build)")
    parser.add_argument("--real", action="store_true", help="over the machine's own driver")
    parser.add_argument("--limiter", action="append", default=[], metavar=LIMITER)
    parser.add_argument("--way", nargs="+", default=[], metavar="WAY", help="beside bare (all)")
    only = parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    only.help = "parts, in this order (all)"
    parser.add_argument("--seconds", type=float, default=3.0, help="of a scene (3)")
    parser.add_argument("--budget", type=float, metavar="S", help="no part begins after so long")
    parser.add_argument("--plot", type=Path, metavar="SVG", help="draw the table, too")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    return parser


def main(words: list[str]) -> int:
    """See scoreboard.py."""
    options = _parser().parse_args(words)
    build = options.build.resolve()
    try:
        chosen = all_ways(build, [limiter_of(each) for each in options.limiter], options.way)
    except ValueError as error:
        print(f"bench/scoreboard.py: {error}", file=sys.stderr)
        return 2
    if not (build / "lib" / "libgpufence.so").exists():
        text = f"bench: nothing measured: {build} holds no library. Run ci/build first, or"
        print(f"{text} name another --build.", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="scoreboard-", ignore_cleanup_errors=True) as name:
        machine = Machine(Path(name), None if options.real else build / "sim")
        body = _measured(machine, build, chosen, options)
    write(options.output, body)
    if not any(row["values"] for row in body["figures"]):
        print("bench: nothing measured.", file=sys.stderr)
        return 3
    print(table(body))
    if options.plot is not None:
        options.plot.write_text(plot.drawn(body), encoding="utf-8")
    return 0


def _measured(
    machine: Machine, build: Path, chosen: list[Way], options: argparse.Namespace
) -> dict[str, Any]:
    kernels: Kernels | None = None
    if "time" in options.only:
        try:
            kernels = compile_kernels([build], machine.folder, machine.environment())
        except NoKernels as error:
            print(f"bench: programs of kernels are left out: {error}.", file=sys.stderr)
    session = Session(machine, kernels)
    bench = Bench(machine, session, build, options.seconds)
    told: dict[str, Told] = {way.name: Told({}) for way in chosen}
    left_out: list[dict[str, str]] = []
    began = time.monotonic()
    try:
        for part in dict.fromkeys(options.only):
            for way in chosen:
                if options.budget is not None and time.monotonic() - began > options.budget:
                    why = "budget"
                else:
                    session.mps.wanted(way.mps)
                    why = session.mps.missing if way.mps else ""
                why = why or _one(bench, part, way, told[way.name])
                if why:
                    left_out.append({"part": part, "way": way.name, "why": why})
                said = why or f"{time.monotonic() - began:.0f} s"
                print(f"{part} | {way.name}: {said}", file=sys.stderr, flush=True)
    finally:
        session.close()
    return _body(machine, told, left_out, time.monotonic() - began)


def _one(bench: Bench, part: str, way: Way, told: Told) -> str:
    """Measure one part of one way into `told`; why it could not be, or ''."""
    try:
        found = MEASURES[part](bench, way)
    except (NotMeasured, BenchError, OSError) as error:
        return str(error)
    told.values |= found.values
    told.of_bare |= found.of_bare
    return ""


def _body(
    machine: Machine, told: dict[str, Told], left_out: list[dict[str, str]], took_s: float
) -> dict[str, Any]:
    rows = []
    for figure in FIGURES:
        name = figure.name
        found = {way: each.values[name] for way, each in told.items() if name in each.values}
        ratios = {
            way: told[way].of_bare.get(name, ratio(value, found.get("bare")))
            for way, value in found.items()
        }
        rows.append({**asdict(figure), "values": found, "of_bare": ratios})
    return {
        "schema": SCHEMA,
        "simulated": machine.sim is not None,
        "processors": cores_here(),
        "mps": shutil.which(CONTROL) is not None,
        "limit_mib": LIMIT_MIB,
        "ways": [*told],
        "took_s": round(took_s, 1),
        "figures": rows,
        "left_out": left_out,
    }


def table(body: dict[str, Any]) -> str:
    """The figures for people: each way's, and what it is of the bare driver's."""
    driver = "the simulated driver" if body["simulated"] else "a real driver"
    title = f"over {driver}, {body['took_s']:g} s"
    ways = [way for way in body["ways"] if any(way in row["values"] for row in body["figures"])]
    lines = [
        f"{title:40}{'unit':16}{'best':>6}" + "".join(f"{way:>11}{'x bare':>8}" for way in ways)
    ]
    claim = ""
    for row in body["figures"]:
        if not row["values"]:
            continue
        if row["claim"] != claim:
            claim = row["claim"]
            lines.append(f"{claim}:")
        best = "" if row["best"] is None else f"{row['best']:g}"
        cells = "".join(
            f"{_number(row['values'].get(way)):>11}{_number(row['of_bare'].get(way)):>8}"
            for way in ways
        )
        like = f"   {row['like']}" if row["like"] else ""
        lines.append(f"  {row['name']:38}{row['unit']:16}{best:>6}{cells}{like}")
    lines += [f"left out: {x['part']}, {x['way']}: {x['why']}" for x in body["left_out"]]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
