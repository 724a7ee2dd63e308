"""`gpufence`: the list of subcommands, and the one place where a failure becomes a line.

Owns argument parsing and exit statuses; must not know what a subcommand does. Only the chosen
subcommand is imported, because `gpufence run` stands in front of every fenced program.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .errors import ExitCode, ToolError

# Every subcommand is a module of its own with USAGE_STATUS, add_arguments(parser) and run(args).
_COMMANDS = {
    "run": "run a program with the library preloaded, inside a limit",
    "top": "watch containers: memory and GPU time of their limits",
    "config": "show which limits apply, and where each comes from",
    "cdi": "write, list and check CDI files, for docker and podman",
    "doctor": "prove that a process is fenced, and say which driver it uses",
}


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line and whose status the subcommand chooses."""

    usage_status = ExitCode.USAGE

    def error(self, message: str) -> NoReturn:
        self.exit(self.usage_status, f"{self.prog}: {message}. See `{self.prog} --help`.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program name; default: the process's own.

    Returns:
        The exit status; `run` does not return when it succeeds, because it becomes the program.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except ToolError as error:
        print(f"gpufence: {error}", file=sys.stderr)
        return int(error.status)
    except BrokenPipeError:
        # The reader went away (`gpufence doctor | head -1`); keep the interpreter's flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return int(ExitCode.ERROR)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell reports it


def _run(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in _COMMANDS:
        _overview().parse_args(arguments)  # prints the help or the complaint, and exits
    module = importlib.import_module(f".{name}", __package__)
    parser = _Parser(
        prog=f"gpufence {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_status = module.USAGE_STATUS
    module.add_arguments(parser)
    status = int(module.run(parser.parse_args(arguments[1:])))
    sys.stdout.flush()
    return status


def _overview() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:8} {purpose}" for name, purpose in _COMMANDS.items())
    parser = _Parser(
        prog="gpufence",
        usage="gpufence COMMAND [ARGUMENT ...]",
        description="Share one NVIDIA GPU between containers: start fenced programs, check them.",
        epilog=f"commands:\n{lines}\n\n`gpufence COMMAND --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=_COMMANDS, help=argparse.SUPPRESS)
    return parser
