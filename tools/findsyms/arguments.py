"""Command lines whose complaints are one line, like every other failure of the tool.

Owns the form of a usage error; must not know an option.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from .errors import UsageError


class _Version(argparse.Action):
    """`--version`; the version is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            print(f"findsyms of gpufence {metadata.version('gpufence')}")
        except metadata.PackageNotFoundError:
            print("findsyms, from a checkout that is not installed")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without the usage text in front of its complaints; it has a version."""

    def add_version(self) -> None:
        """Declare --version, behind the options that the command is about."""
        self.add_argument("--version", action=_Version, help="print the version and end")

    def error(self, message: str) -> NoReturn:
        """Ends the command with one line and status 2.

        Raises:
            UsageError: always.
        """
        raise UsageError(self.prog, message)
