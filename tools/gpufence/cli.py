"""`gpufence`: the list of subcommands, and the one place where a failure becomes a line.

Owns argument parsing and exit statuses; must not know what a subcommand does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import doctor, run
from .errors import ExitCode, ToolError

# Every subcommand is a module with HELP, USAGE_STATUS, add_arguments(parser) and run(args).
_COMMANDS = {"run": run, "doctor": doctor}


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line and whose status the subcommand chooses."""

    usage_status = ExitCode.USAGE

    def error(self, message: str) -> NoReturn:
        """Print one line instead of the usage block, and exit."""
        self.exit(self.usage_status, f"{self.prog}: {message}. See `{self.prog} --help`.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program name; default: the process's own.

    Returns:
        The exit status; `run` does not return when it succeeds, because it becomes the program.
    """
    args, unknown = _parser().parse_known_args(argv)
    if unknown:
        args.complain(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        status = int(_COMMANDS[args.command].run(args))
        sys.stdout.flush()
        return status
    except ToolError as error:
        print(f"gpufence: {error}", file=sys.stderr)
        return int(error.status)
    except BrokenPipeError:
        # The reader went away (`gpufence doctor | head -1`); keep the interpreter's flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.ERROR)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gpufence",
        description="Share one NVIDIA GPU between containers: start fenced programs, check them.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.__doc__)
        sub.usage_status = module.USAGE_STATUS
        sub.set_defaults(complain=sub.error)
        module.add_arguments(sub)
    return parser
