"""Forget every container that has ended: remove their files.

    gpufence prune --dry-run
    gpufence prune

Containers with limits that were set for them, or that are frozen, stay unless --all is given:
programs that come later are to find those. Containers that run or are prepared always stay, and so
do other users', but for root.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from gpufence.container import container_state, containers, leftovers, removal
from gpufence.errors import ExitCode, ToolError

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "removed, also where there was nothing to remove",
    1: "one of them could not be removed",
    2: "wrong usage",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--all", action="store_true", help="also those with limits set for them")
    parser.add_argument("--dry-run", action="store_true", help="report, remove nothing")
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    parser.add_argument("--state-dir", metavar="DIR", help="look only in this folder")


def run(args: argparse.Namespace) -> ExitCode:
    """Remove them.

    Returns:
        ERROR where one that should go could not be removed, after the others.
    """
    folders = containers.places(args.state_dir)
    leftovers.sweep(folders)
    cores = container_state.read_cores(args.state_dir)
    removed: list[str] = []
    kept: list[str] = []
    problems: list[ToolError] = []
    for container in containers.find(args.state_dir):
        try:
            state = container_state.read(container, cores)
            if state["state"] != "ended" or os.geteuid() not in (0, container.owner):
                continue
            if (state["set"] or state["frozen"]) and not args.all:
                kept.append(container.name)
                continue
            removal.remove(container, folders, dry_run=args.dry_run)
            removed.append(container.name)
        except ToolError as problem:
            problems.append(problem)
    _tell(args, removed, kept, problems)
    return ExitCode.ERROR if problems else ExitCode.OK


def _tell(
    args: argparse.Namespace, removed: list[str], kept: list[str], problems: list[ToolError]
) -> None:
    if args.json:
        told = {
            "schema": 1,
            "dry_run": args.dry_run,
            "removed": removed,
            "kept": kept,
            "problems": [problem.as_dict() for problem in problems],
        }
        print(json.dumps(told, indent=2))
    else:
        for name in removed:
            print(f"{name}: {'would be removed' if args.dry_run else 'removed'}")
        if not removed and not problems:
            print("gpufence: no ended container to remove", file=sys.stderr)
        if kept:
            print(
                f"gpufence: {len(kept)} with limits set for them stay: {', '.join(kept[:5])}"
                f"{', …' if len(kept) > 5 else ''}. Remove them with `gpufence prune --all`",
                file=sys.stderr,
            )
    for each in problems:
        print(f"gpufence: {each}", file=sys.stderr)
