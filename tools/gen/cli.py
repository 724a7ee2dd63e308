"""`hookgen`: the command line. One module a subcommand, errors as one line on stderr.

Owns argument parsing and exit statuses: 0 done, 1 error, 2 usage, 5 `verify` found a difference.
Must not know what a subcommand does.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from .errors import ExitCode, HookgenError

COMMANDS = {
    "extract": "read the headers, write the model",
    "render": "write the sources of a build from the model",
    "verify": "prove that the committed model and goldens are what would be written now",
    "explain": "show all that is known about one symbol, with an override ready to paste",
}


class _Command(Protocol):
    """What each subcommand module has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run hookgen; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="hookgen", description="Headers to model to C++.")
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Only the chosen command is imported: each brings its own dependencies.
    chosen = next((word for word in words if word in COMMANDS), None)
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == chosen:
            _load(name).add_arguments(subparser)
    args = parser.parse_args(words)
    try:
        status = _load(args.command).run(args)
        sys.stdout.flush()
        return status
    except HookgenError as error:
        if args.debug:
            raise
        print(f"hookgen: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return ExitCode.OK
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if args.debug:
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        print(
            f"hookgen: {args.command} failed: {what}. This is a defect of hookgen; "
            f"`hookgen --debug {args.command} ...` shows where.",
            file=sys.stderr,
        )
        return ExitCode.ERROR


def _load(name: str) -> _Command:
    return cast(_Command, importlib.import_module(f".{name}", __package__))
