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
