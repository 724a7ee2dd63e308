"""How findsyms fails: exit status bits, and failures as values with what, why and fix.

Must not know ELF, the API model or any output format.
"""

from __future__ import annotations

import enum
import json
import os
import sys
from dataclasses import dataclass


class Exit(enum.IntFlag):
    """Exit status of the report, a bitmask in abidiff's manner."""

    OK = 0
    ERROR = 1
    USAGE = 2
    ADDITIONS = 4
    REMOVALS = 8
    UNHANDLED = 16


# `findsyms check` is a verdict, not a comparison: it has a status of its own beside these.
CHECK_FAILED = 5


@dataclass(frozen=True, slots=True)
class Refusal:
    """One library that was not reported on; the others still are."""

    library: str
    what: str
    why: str
    fix: str

    def line(self) -> str:
        """The whole story in one line, for stderr."""
        return f"findsyms: {self.what}: {self.why}. {self.fix}"


def say(line: str) -> None:
    """One line on stderr, if there is one: a name in it may hold a line break or worse."""
    if sys.stderr is None:
        return
    try:
        text = "".join(c if c.isprintable() else "?" for c in line)
        print(text, file=sys.stderr, flush=True)
    except OSError:
        drop(2)


def drop(descriptor: int) -> None:
    """Let what is in a stream's buffer go: Python flushes on its way out, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class ToolError(Exception):
    """Ends the run with one line on stderr; never a traceback."""

    def __init__(self, what: str, why: str, fix: str, status: Exit = Exit.ERROR) -> None:
        """Take the three parts of the line and the exit status."""
        super().__init__(what)
        self.refusal = Refusal(library="", what=what, why=why, fix=fix)
        self.status = status

    def line(self) -> str:
        """The whole story in one line, for stderr."""
        return self.refusal.line()

    def as_json(self) -> str:
        """The three parts, for `--json`; none of them ends with a full stop."""
        each = self.refusal
        parts = {"what": each.what, "why": each.why, "fix": each.fix.removesuffix(".")}
        return json.dumps({"schema": 1, "problem": parts}, indent=2) + "\n"


class UsageError(ToolError):
    """A command line that cannot be parsed."""

    def __init__(self, program: str, why: str) -> None:
        """Keep what argparse says of `program`, such as "findsyms check"."""
        super().__init__(program, why, f"See `{program} --help`.", Exit.USAGE)

    def line(self) -> str:
        """As other programs complain: the command's name stands first."""
        return f"{self.refusal.what}: {self.refusal.why}. {self.refusal.fix}"


class UnreadableError(Exception):
    """A file that cannot be read as a driver library; becomes a `Refusal` of its path."""

    def __init__(self, why: str, fix: str, *, look_further: bool = False) -> None:
        """Take the reason and the way out; the caller knows the path.

        Args:
            why: what is wrong with the file.
            fix: a sentence on what to do about it.
            look_further: a search by soname passes this file by, as ld.so does with foreign files.
        """
        super().__init__(why)
        self.why = why
        self.fix = fix
        self.look_further = look_further
