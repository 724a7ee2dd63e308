"""Show what containers use of which limits, and their processes.

    gpufence status
    gpufence status --all
    gpufence status train --json
    gpufence status train --history

Reads the files that containers keep and changes none of them. Files that unnamed containers left
behind when they ended are removed first.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gpufence.console import flags, screen
from gpufence.container import changes, container_state, containers, leftovers
from gpufence.errors import ExitCode, ToolError
from gpufence.state import limits_file

from . import status_text

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "shown, also where there is no container",
    1: "no such container, or one that cannot be read",
    2: "wrong usage",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; each flag has a GPUFENCE_STATUS_* variable."""
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="one container, or how its name begins"
    )
    flags.add(parser, "--all", help="also containers that have ended; --json always has them")
    flags.add(parser, "--history", help="what was set for it, when and by whom")
    flags.add(parser, "--json", help="one object, schema 1, bytes as integers")
    screen.add_color(parser)
    flags.add(parser, "--state-dir", metavar="DIR", help="look only in this folder")
    flags.add(parser, "--node-dir", metavar="DIR", help="folder where containers take turns")


def run(args: argparse.Namespace) -> ExitCode:
    """Print to stdout.

    Returns:
        OK, also where there is no container and none was named; ERROR where one of them cannot be
        read, after the others.

    Raises:
        ToolError: 1 where the one that was named is not there or cannot be read, 2 where --history
            has no name.
    """
    leftovers.sweep(containers.places(args.state_dir))
    if args.history:
        return _print_history(args)
    cores = container_state.read_cores(args.state_dir, args.node_dir)
    if args.name:
        chosen = [container_state.read(containers.one(args.name, args.state_dir), cores)]
        problems: list[ToolError] = []
    else:
        chosen, problems = container_state.read_all(containers.find(args.state_dir), cores)
    if args.json:
        unread = [problem.as_dict() for problem in problems]
        print(json.dumps({"schema": 1, "containers": chosen, "problems": unread}, indent=2))
    elif args.name:
        print("\n".join(status_text.details(chosen[0], args.color)))
    else:
        _print_table(chosen, args.color, all_of_them=args.all)
    for each in problems:
        print(f"gpufence: {each}", file=sys.stderr)
    return ExitCode.ERROR if problems else ExitCode.OK


def _print_table(states: list[dict[str, Any]], color: str, *, all_of_them: bool) -> None:
    shown = [state for state in states if all_of_them or state["state"] != "ended"]
    if shown:
        print("\n".join(status_text.table(shown, color)))
    elif not states:
        print("gpufence: no container has used a GPU under a limit here", file=sys.stderr)
    if hidden := len(states) - len(shown):
        what = "1 container that has" if hidden == 1 else f"{hidden} containers that have"
        print(
            f"gpufence: {what} ended not shown. See `gpufence status --all`, or remove with"
            " `gpufence prune`",
            file=sys.stderr,
        )


def _print_history(args: argparse.Namespace) -> ExitCode:
    if not args.name:
        raise ToolError(
            what="--history",
            why="it is one container's",
            fix="Write `gpufence status NAME --history`",
            status=ExitCode.USAGE,
        )
    container = containers.one(args.name, args.state_dir)
    path = container.limits_path
    held = limits_file.read(path, container.owner)
    generation = held.generation if held else 0
    written = changes.read(limits_file.history_of(path), container.owner, generation)
    if args.json:
        print(json.dumps({"schema": 1, "container": container.name, "changes": written}, indent=2))
        return ExitCode.OK
    for change in written:
        print(status_text.change_line(change))
    if not written:
        print(f"gpufence: nothing was ever set for '{container.name}'", file=sys.stderr)
    return ExitCode.OK
