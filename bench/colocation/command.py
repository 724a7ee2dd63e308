"""The command line of the bench, and the file that it writes. Must not know how scenes are run."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .kernels import REPO, NoKernels, compile_kernels
from .scenes import SCENES, find
from .session import Kernels, Line, Session, lines_of, turns_of
from .table import complaints, table, undecided
from .ways import Machine, build_of, unknown_settings, ways

COMMANDS = ("measure", "table", "plot", "work", "scenes")
OVERHEAD_S = 12.0  # of a line, until one was measured
SCHEMA = 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench/colocation.py", description="What sharing one GPU costs unlike tenants."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="run scenes (the default command)")
    ours = measure.add_argument("--ours", "--build", nargs="+", default=[str(REPO / "build")])
    ours.metavar = "[NAME=]DIR[,VARIABLE=VALUE]"
    ours.help = "builds of the library, to be compared in one session (ours=build)"
    measure.add_argument("--scene", nargs="+", metavar="NAME", help="scenes (all with a name)")
    measure.add_argument("--way", nargs="+", default=[], metavar="WAY", help="ways (all)")
    measure.add_argument("--seconds", type=float, default=4.0, help="of a run (4)")
    measure.add_argument("--rounds", type=int, default=1, metavar="N")
    measure.add_argument("--budget", type=float, metavar="S", help="no line begins that ends later")
    measure.add_argument("--sim", action="store_true", help="over the simulated driver")
    measure.add_argument("--judge", action="store_true", help="hold the promises against it")
    measure.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    shown = commands.add_parser("table", help="what a session wrote, for people")
    shown.add_argument("files", type=Path, nargs="+", metavar="FILE")
    shown.add_argument("--judge", action="store_true")
    drawn = commands.add_parser("plot", help="the same as an SVG; needs matplotlib")
    drawn.add_argument("files", type=Path, nargs="+", metavar="FILE")
    drawn.add_argument("-o", "--output", type=Path, required=True)
    commands.add_parser("scenes", help="their names")
    return parser


def _gpus() -> int:
    """How many this machine has; 1 where nobody can tell."""
    if shutil.which("nvidia-smi") is None:
        return 1
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return max(1, sum(line.startswith("GPU ") for line in done.stdout.splitlines()))


def write(path: Path | None, body: Mapping[str, Any]) -> None:
    """At once or not at all, so that whoever ends the session early has a whole file."""
    if path is None:
        return
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


def _described(line: Line) -> dict[str, Any]:
    """What a line is, without its figures."""
    tenants = [
        {"program": one.program, "limit": one.limit, "soft": one.soft, "priority": one.priority}
        for one in line.scene.tenants
    ]
    return {
        "scene": line.scene.name,
        "way": line.way.name,
        "kind": line.way.kind,
        "seconds": line.seconds,
        "settings": tenants,
        "unknown_settings": unknown_settings(line.way, line.scene.tenants),
    }


def run_lines(
    session: Session, lines: Sequence[Line], body: dict[str, Any], options: argparse.Namespace
) -> None:
    """Measures one after the other into body["lines"], and writes the file after each."""
    began = time.monotonic()
    possible = []
    for line in lines:
        why = session.why_not(line)
        if why:
            body["left_out"].append({**_described(line), "why": why})
        else:
            possible.append(line)
    overhead_s = OVERHEAD_S
    groups = turns_of(possible) if options.rounds > 1 else [[line] for line in possible]
    for place, group in enumerate(groups):
        rest = [line for later in groups[place:] for line in later]
        rounds = options.rounds if len(group) > 1 else 1
        left_s = float("inf")
        if options.budget is not None:
            left_s = options.budget - (time.monotonic() - began)
        if left_s < rounds * sum(line.seconds for line in group) + overhead_s:
            body["left_out"] += [{**_described(one), "why": "budget"} for one in rest]
            write(options.output, body)
            break
        if len(group) > 1:
            told = session.measure_in_turns(group, rounds)
        else:
            following = rest[1] if len(rest) > 1 and rounds == options.rounds else None
            told = [session.measure(group[0], following)]
            overhead_s = max(0.5 * overhead_s, told[0]["took_s"] - group[0].seconds)
        for line, figures in zip(group, told, strict=True):
            body["lines"].append({**_described(line), **figures})
            said = figures.get("error") or f"{figures['took_s']:.1f} s"
            print(f"{line.scene.name} | {line.way.name}: {said}", file=sys.stderr, flush=True)
        write(options.output, body)


def _measure(options: argparse.Namespace) -> int:
    builds = [build_of(text) for text in options.ours]
    scenes = find(options.scene) if options.scene else list(SCENES)
    chosen = ways(builds, options.way)
    for way in chosen:
        if way.build is not None and not (way.build / "lib" / "libgpufence.so").exists():
            text = f"bench: nothing measured: {way.build} holds no library. Run ci/build first, or"
            print(f"{text} name another with --ours.", file=sys.stderr)
            return 3
    # Whoever ends the bench does not leave its programs on the GPU.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folders = [*(way.build for way in builds if way.build is not None), REPO / "build"]
    with tempfile.TemporaryDirectory(prefix="colocation-", ignore_cleanup_errors=True) as name:
        sim = folders[0] / "sim" if options.sim else None
        machine = Machine(Path(name), sim, 1 if options.sim else _gpus())
        body: dict[str, Any] = {"schema": SCHEMA, "simulated": options.sim, "gpus": machine.gpus}
        body |= {"seconds": options.seconds, "lines": [], "left_out": []}
        kernels: Kernels | None = None
        try:
            kernels = compile_kernels(folders, machine.folder, machine.environment())
            body["calibrated"] = {"one": kernels.one, "full": kernels.full}
        except NoKernels as error:
            print(f"bench: programs of kernels are left out: {error}.", file=sys.stderr)
        session = Session(machine, kernels)
        try:
            run_lines(session, lines_of(scenes, chosen, options.seconds), body, options)
        finally:
            session.close()
            write(options.output, body)
    return _conclude(body, options.judge)


def _conclude(body: Mapping[str, Any], judged: bool) -> int:
    for why in sorted({line["why"] for line in body["left_out"]}):
        names = [f"{one['scene']} | {one['way']}" for one in body["left_out"] if one["why"] == why]
        print(f"left out, {why}: {', '.join(names)}")
    if not body["lines"]:
        print("bench: nothing measured.", file=sys.stderr)
        return 3
    print(table(body, judged))
    broken = complaints(body) if judged else []
    for line in (*broken, *(undecided(body) if judged else [])):
        print(line)
    return 1 if broken else 0


def _work(words: Sequence[str]) -> int:
    from .workloads.programs import work

    return work(words)


def main(words: Sequence[str]) -> int:
    """See colocation.py."""
    if words[:1] == ["work"]:
        return _work(words[1:])
    if not words or (words[0] not in COMMANDS and words[0] not in ("-h", "--help")):
        words = ["measure", *words]
    options = _parser().parse_args(words)
    try:
        if options.command == "measure":
            return _measure(options)
        if options.command == "scenes":
            print("\n".join(scene.name for scene in SCENES))
            return 0
        bodies = [json.loads(file.read_text(encoding="utf-8")) for file in options.files]
        if options.command == "table":
            return max(_conclude(body, options.judge) for body in bodies)
        from .plot import draw

        draw(bodies, options.output)
    except (ValueError, OSError) as error:
        print(f"bench/colocation.py: {error}", file=sys.stderr)
        return 2
    return 0
