"""Errors that hookgen shows to a person, and the exit status that each one carries."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Exit status of hookgen, stable for scripts."""

    OK = 0
    ERROR = 1
    USAGE = 2
    DIFFERS = 5


class HookgenError(Exception):
    """A failure in three parts: what failed, why, and what to do; one line on stderr."""

    def __init__(self, what: str, why: str, fix: str, code: ExitCode = ExitCode.ERROR) -> None:
        """Keep the parts; none of them ends with a full stop except `fix`."""
        super().__init__(f"{what}: {why}. {fix}")
        self.what, self.why, self.fix, self.code = what, why, fix, code

    def line(self) -> str:
        """The whole story in one line, for stderr."""
        return f"hookgen: {self}"

    def as_dict(self) -> dict[str, str]:
        """The three parts, for `--json`; there none of them ends with a full stop."""
        return {"what": self.what, "why": self.why, "fix": self.fix.removesuffix(".")}


class UsageError(HookgenError):
    """A command line that cannot be parsed."""

    def __init__(self, program: str, why: str) -> None:
        """Keep what argparse says of `program`, such as "hookgen diff"."""
        super().__init__(program, why, f"See `{program} --help`.", ExitCode.USAGE)

    def line(self) -> str:
        """As other programs complain: the command's name stands first."""
        return str(self)
