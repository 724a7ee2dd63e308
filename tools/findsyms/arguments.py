"""Command lines whose complaints are one line, like every other failure of the tool.

Owns the form of a usage error; must not know an option.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from .errors import Exit, say


class Parser(argparse.ArgumentParser):
    """An ArgumentParser without the usage text in front of its complaints."""

    def error(self, message: str) -> NoReturn:
        """One line on stderr, status 2."""
        say(f"{self.prog}: {message}. See `{self.prog} --help`.")
        self.exit(int(Exit.USAGE))
