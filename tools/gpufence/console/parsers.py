"""Parsers of `gpufence`: of one subcommand, and of the list of all.

Owns how help and complaints look; must not know what a subcommand does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType
from typing import NoReturn

from gpufence.errors import ExitCode, one_line

from . import streams


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line and whose status the subcommand chooses."""

    usage_status = ExitCode.USAGE

    def error(self, message: str) -> NoReturn:
        """Ends the command with one line."""
        streams.say(f"{self.prog}: {one_line(message)}. See `{self.prog} --help`.")
        self.exit(self.usage_status)


def of_command(name: str, module: ModuleType) -> Parser:
    """With everything that the subcommand declares."""
    parser = Parser(
        prog=f"gpufence {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_status = module.USAGE_STATUS
    module.add_arguments(parser)
    return parser


def overview(commands: Mapping[str, str]) -> Parser:
    """Prints the help, or complains: for arguments that begin with no subcommand.

    Args:
        commands: what each is for, by name.
    """
    lines = "\n".join(f"  {name:10} {purpose}" for name, purpose in commands.items())
    parser = Parser(
        prog="gpufence",
        usage="gpufence COMMAND [ARGUMENT ...]",
        description="Share one NVIDIA GPU between containers: start fenced programs, check them.",
        epilog=f"commands:\n{lines}\n\n`gpufence help COMMAND` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=commands, help=argparse.SUPPRESS)
    parser.add_argument("--version", action="store_true", help="print the version and end")
    return parser
