"""`hookgen`: the command line. One module a subcommand, errors as one line on stderr.

Owns argument parsing and exit statuses: 0 done, 1 error, 2 usage, 5 `verify` found a difference.
Must not know what a subcommand does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Collection, Sequence
from typing import NoReturn, Protocol, cast

from .errors import ExitCode, HookgenError, UsageError

COMMANDS = {
    "extract": "read the headers, write the model",
    "render": "write the sources of a build from the model",
    "verify": "prove that the committed model and goldens are what would be written now",
    "diff": "show what the headers of one CUDA release have that another's had not",
    "explain": "show all that is known about one symbol, with an override ready to paste",
}

_STATUSES = """\
exit status:
  0    done
  1    an input cannot be read, or an output not written
  2    wrong usage
"""
_DIFFERS = "  5    something differs from what would be written now\n"


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line, like every other failure."""

    def error(self, message: str) -> NoReturn:
        """Ends the command with one line.

        Raises:
            UsageError: always.
        """
        raise UsageError(self.prog, message)


class _Version(argparse.Action):
    """`--version`; the version is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            print(f"hookgen of gpufence {metadata.version('gpufence')}")
        except metadata.PackageNotFoundError:
            print("hookgen, from a checkout that is not installed")
        parser.exit()


def _say(line: str) -> None:
    """One line on stderr, if there is one: a name in it may hold a line break or worse."""
    if sys.stderr is None:
        return
    try:
        text = "".join(c if c.isprintable() else "?" for c in line)
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _drop(2)


def _drop(descriptor: int) -> None:
    """Let what is in a stream's buffer go: Python flushes on its way out, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class _Command(Protocol):
    """What each subcommand module has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run hookgen; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    # Only the chosen command is imported: each brings its own dependencies.
    chosen = next((word for word in words if word in COMMANDS), None)
    parser = parser_of([chosen] if chosen else [])
    try:
        args = parser.parse_args(words)
    except UsageError as error:
        raise SystemExit(_flushed(_failed(error, words))) from None
    except SystemExit as end:  # the help was printed
        status = end.code if isinstance(end.code, int) else ExitCode.USAGE
        raise SystemExit(_flushed(status)) from None
    try:
        if sys.stdout is None:
            fix = "Redirect it to a file or a pipe."
            raise HookgenError("output not written", "stdout is closed", fix)
        status = _load(args.command).run(args)
        sys.stdout.flush()
        return status
    except HookgenError as error:
        if args.debug:
            raise
        return _flushed(_failed(error, words))
    except BrokenPipeError:  # the reader of our output has seen enough
        _drop(1)
        return ExitCode.OK
    except ModuleNotFoundError as error:
        if args.debug:
            raise
        what = f"{args.command} needs the Python package '{error.name}'"
        why, fix = f"{sys.executable} does not have it", "Install it with pip, or run ci/setup."
        return _flushed(_failed(HookgenError(what, why, fix), words))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        if args.debug:
            raise
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        fix = f"This is a defect of hookgen; `hookgen --debug {args.command} ...` shows where."
        if isinstance(error, OSError):
            _drop(1)
            why, fix = error.strerror or str(error), "Make room, or name another file."
        return _flushed(_failed(HookgenError(f"{args.command} failed", why, fix), words))


def parser_of(known: Collection[str]) -> argparse.ArgumentParser:
    """The arguments of `hookgen`, with those of the named commands; the others take none."""
    parser = _Parser(
        prog="hookgen",
        description="Headers to model to C++.",
        epilog=_STATUSES + _DIFFERS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="print the version and end")
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=_STATUSES + (_DIFFERS if name == "verify" else ""),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument("--version", action=_Version, help="print the version and end")
        if name in known:
            _load(name).add_arguments(subparser)
    return parser


def _failed(error: HookgenError, words: Sequence[str]) -> int:
    """Tell a person, and the script that asked for JSON; the exit status."""
    _say(error.line())
    if "--json" in words and sys.stdout is not None:
        print(json.dumps({"schema": 1, "problem": error.as_dict()}, indent=2))
    return error.code


def _flushed(status: int) -> int:
    """The status, or an error when what was printed cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _drop(1)
        _say(f"hookgen: output not written: {error.strerror}. Make room.")
        return status or ExitCode.ERROR
    return status


def _load(name: str) -> _Command:
    return cast(_Command, importlib.import_module(f".{name}", __package__))
