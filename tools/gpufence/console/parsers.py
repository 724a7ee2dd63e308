"""Parsers of `gpufence`: of one subcommand, and of the list of all.

Owns how help and complaints look; must not know what a subcommand does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from gpufence.errors import ExitCode, UsageError, one_line

from . import streams

_SubParsers = argparse._SubParsersAction  # argparse has no other way to ask what it knows


def version() -> str:
    """What `--version` prints."""
    from importlib import metadata

    try:
        return f"gpufence {metadata.version('gpufence')}"
    except metadata.PackageNotFoundError:
        return "gpufence, from a checkout that is not installed"


class _Version(argparse.Action):
    """`--version`; the version is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        streams.require_output()
        print(version())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaint is one line and whose status the subcommand chooses."""

    usage_status = ExitCode.USAGE

    def error(self, message: str) -> NoReturn:
        """Ends the command with one line.

        Raises:
            UsageError: always.
        """
        raise UsageError(self.prog, one_line(message), self.usage_status)


def of_command(name: str, module: ModuleType) -> Parser:
    """With everything that the subcommand declares, its exit statuses included."""
    parser = Parser(
        prog=f"gpufence {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.usage_status = module.USAGE_STATUS
    module.add_arguments(parser)
    own = getattr(module, "VERB_STATUSES", {})
    for verb, each in {"": parser, **verbs(parser)}.items():
        each.add_argument("--version", action=_Version, help="print the version and end")
        each.epilog = _statuses(own.get(verb, module.STATUSES))
        each.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a subcommand's verbs, by name."""
    choices = [each.choices for each in parser._actions if isinstance(each, _SubParsers)]
    return dict(choices[0]) if choices else {}


def _statuses(told: Mapping[int, str]) -> str:
    lines = (f"  {status:<3}  {meaning}" for status, meaning in sorted(told.items()))
    return "exit status:\n" + "\n".join(lines)


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
    parser.add_argument("--version", action=_Version, help="print the version and end")
    return parser
