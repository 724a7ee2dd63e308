"""Flags that a variable can stand for: GPUFENCE_<COMMAND>_<FLAG>, and the flag wins.

Owns the names of those variables; must not know what a flag means.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from gpufence.config import sizes
from gpufence.errors import ExitCode, ToolError


def variable(command: str, flag: str) -> str:
    """The variable of a flag: --soft-cores of set is GPUFENCE_SET_SOFT_CORES."""
    return f"GPUFENCE_{command}_{flag.removeprefix('--')}".upper().replace("-", "_")


def add(
    parser: argparse.ArgumentParser,
    flag: str,
    *,
    metavar: str | None = None,
    help: str,
    name: str = "",
) -> None:
    """Declare a flag; without a metavar it is a switch.

    Args:
        parser: of the command, whose program name ends in the command's.
        flag: with its two dashes.
        metavar: what stands for the value.
        help: one clause.
        name: of its variable, where that is an older one.

    Raises:
        ToolError: exit 2, when the variable of a switch says neither yes nor no.
    """
    named = name or variable(parser.prog.rpartition(" ")[2], flag)
    text = os.environ.get(named, "")
    told = f"{help} [{named}]"
    if metavar is not None:
        parser.add_argument(flag, metavar=metavar, default=text or None, help=told)
        return
    try:
        default = bool(text) and sizes.parse_switch(text)
    except sizes.TextError as error:
        clause, fix = error.clause, error.fix
        raise ToolError(
            what=f"{named}='{sizes.quote(text)}'", why=clause, fix=fix, status=ExitCode.USAGE
        ) from None
    parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=told)


def seconds(least: float, most: float) -> Callable[[str], float]:
    """The type of an argument that is a number of seconds between two bounds."""

    def parsed(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is no number from {least:g} to {most:g}")
        return number

    return parsed
