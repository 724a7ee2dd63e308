"""Hold every launch of a container until `gpufence resume NAME`.

    gpufence freeze train
    gpufence resume train

Nothing is lost and no result changes: memory stays as it is, and queries, copies and waits go on.
A freeze holds on every GPU, in running programs and in later ones, with a core limit or without,
until `resume`. Kernels that were launched before run to their end. Only the container's owner and
root may freeze.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from gpufence.container import containers, setting
from gpufence.container.setting import Entries
from gpufence.errors import ExitCode
from gpufence.state.limits_bytes import EVERY_GPU, Amounts

from . import set as set_command

USAGE_STATUS = ExitCode.USAGE
STATUSES = {
    0: "frozen, or already so",
    1: "no such container, not permitted, or its file cannot be used",
    2: "wrong usage",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="the container, or how its name begins")
    parser.add_argument("--json", action="store_true", help="one object, schema 1")
    parser.add_argument("--state-dir", metavar="DIR", help="look only in this folder")


def run(args: argparse.Namespace) -> ExitCode:
    """Freeze the container.

    Raises:
        ToolError: 1, as the module says.
    """
    return make(args, frozen=True)


def make(args: argparse.Namespace, *, frozen: bool) -> ExitCode:
    """Have the container frozen or not, and say so on stdout."""
    container = containers.one(args.name, args.state_dir)
    set_command.check_owner(container)

    def edit(entries: Entries) -> Entries:
        return {**entries, EVERY_GPU: replace(entries.get(EVERY_GPU, Amounts()), frozen=frozen)}

    old, _, generation = setting.apply(container, edit)
    changed = old.get(EVERY_GPU, Amounts()).frozen is not frozen
    if args.json:
        told = {
            "schema": 1,
            "container": container.name,
            "frozen": frozen,
            "changed": changed,
            "generation": generation,
        }
        print(json.dumps(told, indent=2))
        return ExitCode.OK
    print(f"{container.name}: {'frozen' if frozen else 'not frozen'}")
    if not changed:
        print(f"{container.name}: nothing changed", file=sys.stderr)
    elif frozen and container.region is None:
        print(
            f"{container.name}: no program of it has used a GPU yet: this begins with the first",
            file=sys.stderr,
        )
    return ExitCode.OK
