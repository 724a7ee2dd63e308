"""The part of ci/kubernetes that runs inside a session: begins the cluster, then each section."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .cluster import Cluster, NotReadyError
from .found import SIMULATED, Amounts, Found
from .sections import SECTIONS


def main() -> int:
    """Exit status: 0, 3 where the cluster does not begin, 5 where something was not held."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("tree", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--tools", type=Path)
    for name in ("pods", "at-once", "kills", "calm", "minutes", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("sections", nargs="+")
    args = parser.parse_args()
    cluster = Cluster(args.folder, args.tools)
    amounts = Amounts(args.pods, args.at_once, args.kills, args.calm, args.minutes, args.seed)
    found = Found(cluster, args.library, args.build, amounts)
    try:
        try:
            cluster.begin(args.tree, SIMULATED)
        except NotReadyError as error:
            print(f"ci/kubernetes: skipped: {error}", file=sys.stderr)
            return 3
        print(f"{cluster.version()}\n", flush=True)
        for name in args.sections:
            print(f"**{name}**: {(SECTIONS[name].__doc__ or '').strip()}\n", flush=True)
            try:
                SECTIONS[name](found)
            except NotReadyError as error:
                found.faults.append(f"{name}: no {error}")
            print(flush=True)
    finally:
        cluster.end()
    for fault in found.faults:
        print(f"NOT HELD: {fault}", flush=True)
    return 5 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
