"""One thing that `gpufence doctor` looked at, and how it is told.

Owns the form of findings; must not know what is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpufence.errors import ExitCode, ToolError


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw.

    `problems` keep a limit from holding, or a program from starting; `notes` are worth knowing and
    change no status.
    """

    check: str
    told: tuple[str, ...]  # lines for people
    facts: Mapping[str, object]  # the same for --json
    problems: tuple[ToolError, ...] = ()
    notes: tuple[ToolError, ...] = ()


def failed(what: str, why: str, fix: str, status: ExitCode = ExitCode.CHECK_FAILED) -> ToolError:
    """A problem or note, in the three parts that every message has."""
    return ToolError(what=what, why=why, fix=fix, status=status)


@dataclass(slots=True)
class Collected:
    """Lines, facts and complaints while a check goes on."""

    check: str
    told: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    problems: list[ToolError] = field(default_factory=list)
    notes: list[ToolError] = field(default_factory=list)

    def done(self) -> Finding:
        """What there is now."""
        return Finding(
            self.check, tuple(self.told), self.facts, tuple(self.problems), tuple(self.notes)
        )
