"""Exit statuses of `gpufence` and the one error type that carries them.

Owns how a failure is worded; must not know any subcommand.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process returns; the last three belong to `run`, as in env(1) and timeout(1)."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NO_DRIVER = 3
    INVALID_LIMIT = 4
    CHECK_FAILED = 5
    WRAPPER_FAILED = 125
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


def one_line(text: str) -> str:
    """The text with everything that no terminal prints as '?': a name may hold a line break."""
    return "".join(c if c.isprintable() else "?" for c in text)


class ToolError(Exception):
    """A failure that a user can understand: what failed, why, and how to fix it."""

    def __init__(self, *, what: str, why: str, fix: str, status: ExitCode = ExitCode.ERROR) -> None:
        """Keep the three parts apart, so that `--json` can print them as fields.

        Args:
            what: the thing that failed, with the user's own text quoted.
            why: the cause, without a final full stop.
            fix: one imperative sentence without a final full stop, or a question.
            status: what the process returns.
        """
        stop = "" if fix.endswith("?") else "."
        super().__init__(one_line(f"{what}: {why}. {fix}{stop}"))
        self.what = what
        self.why = why
        self.fix = fix
        self.status = status

    @property
    def line(self) -> str:
        """All of it on one line, for stderr."""
        return f"gpufence: {self}"

    def as_dict(self) -> dict[str, str]:
        """The three parts, for `--json`."""
        return {"what": self.what, "why": self.why, "fix": self.fix}


class UsageError(ToolError):
    """A command line that cannot be parsed."""

    def __init__(self, program: str, why: str, status: ExitCode) -> None:
        """Keep what argparse says.

        Args:
            program: the command, such as "gpufence cdi list".
            why: argparse's complaint.
            status: what the process returns.
        """
        super().__init__(what=program, why=why, fix=f"See `{program} --help`", status=status)

    @property
    def line(self) -> str:
        """As other programs complain: the command's name stands first."""
        return str(self)
