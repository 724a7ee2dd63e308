"""Forget a container that has ended: remove its files, the limits that were set for it included.

    gpufence rm train

NAME is the whole name, as `gpufence status --all` shows it. Refused while a program of it runs. A
later program of that name begins anew, with the limits that it brings along.
"""

from __future__ import annotations

import argparse
import json

from gpufence.container import containers, removal
from gpufence.errors import ExitCode

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "removed",
    1: "no such container, a program of it runs, or not permitted",
    2: "wrong usage",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="the container's whole name")
    parser.add_argument("--dry-run", action="store_true", help="report, remove nothing")
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    parser.add_argument("--state-dir", metavar="DIR", help="look only in this folder")


def run(args: argparse.Namespace) -> ExitCode:
    """Remove it.

    Raises:
        ToolError: 1, as the module says.
    """
    container = containers.one(args.name, args.state_dir, whole=True)
    folders = containers.places(args.state_dir)
    files = removal.remove(container, folders, dry_run=args.dry_run)
    if args.json:
        told = {
            "schema": 1,
            "container": container.name,
            "dry_run": args.dry_run,
            "files": [str(path) for path in files],
        }
        print(json.dumps(told, indent=2))
        return ExitCode.OK
    print(f"{container.name}: {'would be removed' if args.dry_run else 'removed'}")
    return ExitCode.OK
